"""Live sections of the dashboard, made once for all browsers, and only while one is watching.

The state consists of a few sections, each a piece of JSON that is made again when its content has changed. There are
twenty turns a second. A browser sends the turn that it has, receives the latest version of the sections changed since,
and asks again. So a slow browser asks less often: it receives fewer versions, never old ones, and delays nobody.

Each response has the time, each section the time of its content, both on CLOCK_MONOTONIC, so that outdated content is
recognisable. Values without support in the data are null.
"""

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any

from drivers.frame import CHANNELS
from service.protocol.json_values import json_values
from service.protocol.messages import STATUSES_WITH_VALUE, FrameMessage, TorqueMessage
from service.web._cache import Arm, Cache
from service.web._health import SILENT_S, arm_states, daemon_problem, estimate_age_s

TURN_S = 0.05
PATIENCE_S = 1.0  # longest wait for a change; an empty response then shows that the daemon is alive
WATCHED_S = 3.0  # time after its last request for which a browser counts as watching
_OVERVIEW_NS = 500_000_000

_Make = Callable[[Arm], str]


class Live:
    """The sections of all arms; turns start again with `epoch`, the boot counter of this process."""

    def __init__(self, cache: Cache, epoch: int, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._cache, self._epoch, self._clock = cache, epoch, clock
        self.turn = 0
        self._texts: dict[tuple[str, str], str] = {}
        self._changed: dict[tuple[str, str], int] = {}  # turn of a section's last change
        self._made_of: dict[tuple[str, str], int] = {}  # number of messages it was made from
        self._watched_ns: dict[str, int] = {}  # by arm, and "" for the sections of all arms
        self._next_overview_ns = 0
        self._next = asyncio.Event()

    def watched(self, now_ns: int) -> set[str]:
        """Return the arms that are being watched."""
        return {arm for arm, at_ns in self._watched_ns.items() if arm and now_ns - at_ns < WATCHED_S * 1e9}

    def update(self, now_ns: int) -> None:
        """Make changed sections again, and wake up waiting requests."""
        if now_ns - self._watched_ns.get("", -(1 << 62)) > WATCHED_S * 1e9:
            return
        self.turn += 1
        of_status = sum(arm.seen["status"] for arm in self._cache.arms.values())
        if now_ns >= self._next_overview_ns or self._made_of.get(("", "fleet")) != of_status:
            self._next_overview_ns = now_ns + _OVERVIEW_NS
            self._made_of["", "fleet"] = of_status
            self._put("", "fleet", json.dumps(overview(self._cache, now_ns), separators=(",", ":")))
        for name in self.watched(now_ns):
            arm = self._cache.arms[name]
            for kind, sections in _SECTIONS.items():
                count = arm.seen[kind]
                if self._made_of.get((name, kind)) != count:
                    self._made_of[name, kind] = count
                    for section, make in sections.items():
                        self._put(name, section, make(arm))
        self._next.set()
        self._next = asyncio.Event()

    def _put(self, arm: str, section: str, text: str) -> None:
        if text and self._texts.get((arm, section)) != text:
            self._texts[arm, section] = text
            self._changed[arm, section] = self.turn

    async def answer(self, arm: str, epoch: int, since: int) -> str:
        """Return the sections changed since the turn `since`, of all arms and of `arm` ("" for none).

        Waits for a change, at most `PATIENCE_S`.
        """
        since = since if epoch == self._epoch and since <= self.turn else -1
        began_ns = self._clock()
        deadline_ns = began_ns + round(PATIENCE_S * 1e9)
        fresh = all(began_ns - self._watched_ns.get(key, -(1 << 62)) < WATCHED_S * 1e9 for key in {"", arm})
        while True:
            now_ns = self._clock()
            self._watched_ns[""] = self._watched_ns[arm] = now_ns
            found = [key for key, turn in self._changed.items() if fresh and turn > since and key[0] in ("", arm)]
            # sections of the turn that are not in this response are still to be sent
            shown_turn = self.turn if fresh else max(since, 0)
            if found or now_ns >= deadline_ns:
                parts = [f'"epoch":{self._epoch}', f'"turn":{shown_turn}', f'"now":{now_ns * 1e-9:.3f}']
                parts += [f'"arm":{json.dumps(arm)}']
                parts += [f'"{section}":{self._texts[name, section]}' for name, section in found]
                return "{" + ",".join(parts) + "}"
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._next.wait(), (deadline_ns - now_ns) * 1e-9)
                fresh = True  # sections that nobody watched before have been made again


def number(value: float | None) -> str:
    """Return a number with six digits; null if unknown, NaN or infinite."""
    return "null" if value is None or not math.isfinite(value) else f"{value:.6g}"


def numbers(values: Iterable[float | None]) -> str:
    """Return a list of numbers."""
    return "[" + ",".join(map(number, values)) + "]"


def _estimate(arm: Arm) -> str:
    """Return values with their standard deviations; null for parameters without a value."""
    found = arm.estimate
    if found is None:
        return ""
    there = [status in STATUSES_WITH_VALUE for status in found.status]
    theta = [value if ok else None for value, ok in zip(found.theta.tolist(), there, strict=True)]
    std = [value if ok else None for value, ok in zip(found.std.tolist(), there, strict=True)]
    return (
        f'{{"t":{found.envelope.t_ns * 1e-9:.3f},"at":{found.envelope.t_host_ns * 1e-9:.3f},'
        f'"theta":{numbers(theta)},"std":{numbers(std)},"lam":[{",".join(f"{x:.7g}" for x in found.lam.tolist())}],'
        f'"innovation":{numbers(found.innovation.tolist())},"sigma":{numbers(found.sigma.tolist())},'
        f'"frames":{found.frames},"used":{found.used},"masked":{found.masked},"lost":{found.lost},'
        f'"resets":{found.resets},"hash":{json.dumps(found.hash)}}}'
    )


def _standing(arm: Arm) -> str:
    """Return status and excitation of the parameters, which change seldom."""
    found = arm.estimate
    if found is None:
        return ""
    excited = [1 if flag else 0 for flag in found.excited.tolist()]
    return json.dumps({"status": found.status, "excited": excited}, separators=(",", ":"))


def _torque(arm: Arm) -> str:
    if not isinstance(found := arm.latest("torque"), TorqueMessage):
        return ""
    measured, predicted = numbers(found.measured.tolist()), numbers(found.predicted.tolist())
    at = found.envelope.t_host_ns * 1e-9
    return f'{{"t":{found.envelope.t_ns * 1e-9:.3f},"at":{at:.3f},"measured":{measured},"predicted":{predicted}}}'


def _signals(arm: Arm) -> str:
    """Return the channels of the latest frame, with the drives' own status and validity if the source has them."""
    if not isinstance(found := arm.latest("frame"), FrameMessage):
        return ""
    channels = ((name, getattr(found.frame, name)) for name in (*CHANNELS, "status_word", "valid"))
    lists = ",".join(f'"{name}":{numbers(values.tolist())}' for name, values in channels if values is not None)
    return f'{{"t":{found.envelope.t_ns * 1e-9:.3f},"at":{found.envelope.t_host_ns * 1e-9:.3f},{lists}}}'


def _bus(arm: Arm) -> str:
    """Return the state of frames, the cycle and the bus, from acquisition and estimator."""
    body = {
        "at": {src: at_ns * 1e-9 for (kind, src), at_ns in arm.sent_ns.items() if kind == "status"},
        "acquisition": arm.status.get("acquisition", {}),
        "estimator": {
            key: value for key, value in arm.status.get("estimator", {}).items() if key not in ("drift", "change")
        },
        "rate_hz": arm.stats.get("acquisition", {}).get("rate_hz"),
        "latency": arm.stats.get("estimator", {}).get("latency"),
    }
    return json.dumps(body, separators=(",", ":"))


#: Sections by the kind of message they are made from.
_SECTIONS: dict[str, dict[str, _Make]] = {
    "estimate": {"estimate": _estimate, "standing": _standing}, "torque": {"torque": _torque}, "status": {"bus": _bus},
    "frame": {"signals": _signals},
}  # fmt: skip


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
