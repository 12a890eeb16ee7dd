"""State of the daemon and of each arm for `/healthz` and `/readyz`, from the cache."""

from dataclasses import dataclass
from typing import Any

from service.web._cache import Arm, Cache

SILENT_S = 3.0  # longest silence of the supervisor (it reports twice a second), or of a process (four times)
FRESH_S = 3.0  # greatest age of the latest frame, and of the latest processed one


@dataclass(frozen=True)
class ArmState:
    """State of an arm: everything that is wrong, as text."""

    arm: str
    problems: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def silence_text(cache: Cache, now_ns: int) -> str:
    """Return a text if the supervisor is silent; empty otherwise, also if it is stopping."""
    silence_s = cache.silence_s(now_ns)
    if cache.status.stopping or silence_s <= SILENT_S:
        return ""
    return f"the supervisor has been silent for {silence_s:.1f} s"


def daemon_problem(cache: Cache, now_ns: int) -> str:
    """Return a text if the whole daemon is not working, whatever its arms do; empty otherwise."""
    if cache.status.stopping:
        return "the daemon stops"
    known = cache.status.processes
    return silence_text(cache, now_ns) or (_process_problem(cache, None, "gateway", now_ns) if known else "")


def arm_states(cache: Cache, now_ns: int) -> list[ArmState]:
    """Return the state of every arm, as of the supervisor's last status."""
    return [ArmState(arm.name, tuple(_problems(cache, arm, now_ns))) for arm in cache.arms.values()]


def _problems(cache: Cache, arm: Arm, now_ns: int) -> list[str]:
    looked_at = (_process_problem(cache, arm.name, role, now_ns) for role in ("acquisition", "estimator"))
    if found := [text for text in looked_at if text]:
        return found
    state = cache.info(arm.name, "acquisition").get("state", "unknown")
    if state == "running":
        text = _no_frames(arm, now_ns) or _no_progress(arm, now_ns)
        return [text] if text else []
    if state == "ended":
        return []
    if state == "held":
        return [f"the source is held: thetad control start arm={arm.name} lets it begin"]
    missing = arm.status.get("acquisition", {}).get("waiting_for", [])
    return [f"the source is {state}" + (f" for {', '.join(missing)}" if missing else "")]


def _process_problem(cache: Cache, arm: str | None, role: str, now_ns: int) -> str:
    process = cache.process(arm, role)
    if process is None:
        return f"nothing is known of the {role} yet"
    if process["state"] != "ready":
        why = f": {process['last_error']}" if process["last_error"] else ""
        return f"the {role} is {process['state']}{why}"
    silence_s = process["silent_s"] + cache.silence_s(now_ns)  # as reported, plus the time since the report
    return f"the {role} has not been heard for {silence_s:.1f} s" if silence_s > SILENT_S else ""


def _no_frames(arm: Arm, now_ns: int) -> str:
    age_s = (now_ns - arm.frames_ns) * 1e-9
    if age_s <= FRESH_S:
        return ""
    source: dict[str, Any] = arm.status.get("acquisition", {}).get("source", {})
    detail = ", ".join(str(source[key]) for key in ("state", "problem") if source.get(key))
    return f"no frame for {age_s:.1f} s" + (f" ({detail})" if detail else "")


def _no_progress(arm: Arm, now_ns: int) -> str:
    """Return a text if frames arrive but the estimator processes none; estimates may rightly be old at rest."""
    age_s = (now_ns - arm.used_ns) * 1e-9
    return f"the estimator has processed no frame for {age_s:.1f} s" if age_s > FRESH_S else ""


def estimate_age_s(arm: Arm, now_ns: int) -> float | None:
    """Return the time since the arrival of the latest frame used for the latest estimate [s]; None before the first."""
    estimate = arm.estimate
    if estimate is None or not estimate.envelope.t_host_ns:
        return None
    return (now_ns - estimate.envelope.t_host_ns) * 1e-9
