"""Overview of all arms and processes of a daemon, from the cache: the first page of the dashboard."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from service.protocol.json_values import json_values
from service.web._cache import Arm, Cache
from service.web._health import SILENT_S, arm_states, daemon_problem, estimate_age_s

_PROCESS = ("name", "role", "arm", "state", "restarts", "last_error")
_STATE = ("state", "reason")


def overview(cache: Cache, now_ns: int) -> dict[str, Any]:
    """Return the overview as JSON values."""
    status = cache.status
    states = {state.arm: list(state.problems) for state in arm_states(cache, now_ns)}
    found: dict[str, Any] = json_values(
        {
            "name": status.daemon.get("name"), "uptime_s": status.daemon.get("uptime_s"), "stopping": status.stopping,
            "trouble": daemon_problem(cache, now_ns),
            "arms": [_arm(cache, arm, states[arm.name], now_ns) for arm in cache.arms.values()],
            "processes": [
                {key: process[key] for key in _PROCESS} | _usage(process["info"]) for process in status.processes
            ],
            "jobs": _jobs(cache),
        }
    )  # fmt: skip
    return found


def _arm(cache: Cache, arm: Arm, problems: list[str], now_ns: int) -> dict[str, Any]:
    acquisition, estimator = arm.status.get("acquisition", {}), arm.status.get("estimator", {})
    recorder = cache.info(arm.name, "recorder")
    estimate = arm.estimate
    counts = None
    if estimate is not None:
        of = len(estimate.status)
        counts = {
            "of": of, "estimated": sum(status in ("estimated", "stale", "frozen") for status in estimate.status),
            "invalid": estimate.status.count("invalid"), "excited": int(estimate.excited.sum()),
        }  # fmt: skip
    return {
        "name": arm.name, "problems": problems, "robot": arm.meta.get("acquisition", {}).get("robot"),
        "source": arm.meta.get("acquisition", {}).get("source"), "state": acquisition.get("state"),
        "silent": now_ns - arm.sent_ns.get(("status", "acquisition"), 0) > SILENT_S * 1e9,
        "safety": _safety(acquisition.get("safety")), "motion": acquisition.get("motion"),
        "rate_hz": arm.stats.get("acquisition", {}).get("rate_hz"), "lost": estimator.get("lost"),
        "estimate_age_s": estimate_age_s(arm, now_ns), "parameters": counts, "model": estimator.get("model"),
        **{what: {key: estimator.get(what, {}).get(key) for key in _STATE} for what in ("drift", "trust", "supply")},
        "recorder": None if "state" not in recorder else _recorder(recorder),
        "hash": arm.meta.get("estimator", {}).get("hash"),
    }  # fmt: skip


def _safety(safety: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the state of commanded drives; None for other arms."""
    if safety is None:
        return None
    found = {key: safety.get(key) for key in ("state", "reason", "permit_left_s")}
    run, guiding = safety.get("run"), safety.get("guiding")
    return found | {
        "run": run and {key: run.get(key) for key in ("number", "trajectory", "outcome", "t_s", "duration_s")},
        "guiding": guiding and {key: guiding.get(key) for key in ("number", "outcome", "phase")},
    }


def _recorder(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a recorder, without paths."""
    return {
        "state": info["state"], "file": PurePath(info["path"]).name, "written": info["written"], "bytes": info["bytes"],
        "error": info["error"],
    }  # fmt: skip


def _usage(info: Mapping[str, Any]) -> dict[str, Any]:
    usage = info.get("usage", {})
    return {"cpu_s": usage.get("cpu_s"), "resident_bytes": usage.get("resident_bytes")}


def _jobs(cache: Cache) -> dict[str, Any]:
    """Return the number of jobs in each state, and the queue's trouble."""
    process = cache.process(None, "jobs")
    info: Mapping[str, Any] = {} if process is None else process["info"]
    states: dict[str, int] = {}
    for kinds in info.get("by_kind", {}).values():
        for state, count in kinds.items():
            states[state] = states.get(state, 0) + count
    return {"states": states, "trouble": info.get("trouble", "")}
