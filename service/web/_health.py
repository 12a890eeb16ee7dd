"""Is the daemon alive, and is each arm at work: what `/healthz` and `/readyz` answer, from what is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from service.web._cache import Arm, Cache

SILENT_S = 3.0  # so long without a word from the supervisor, which speaks twice a second, or a process: four times
FRESH_S = 3.0  # the newest frame may be so old, and the newest one that the estimator has worked off


@dataclass(frozen=True)
class ArmState:
    """Whether an arm is at work, and if not, everything that is wrong, in words."""

    arm: str
    problems: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def silent(latest: Cache, now_ns: int) -> str:
    """Say that the supervisor is silent; an empty text if it is not, or has said that it stops."""
    silence_s = latest.silence_s(now_ns)
    if latest.stopping or silence_s <= SILENT_S:
        return ""
    return f"the supervisor has been silent for {silence_s:.1f} s"


def unready(latest: Cache, now_ns: int) -> str:
    """Say what keeps the whole daemon from its work, whatever its arms do; an empty text if nothing does."""
    if latest.stopping:
        return "the daemon stops"
    return silent(latest, now_ns) or (_process_problem(latest, None, "gateway", now_ns) if latest.daemon else "")


def arm_states(latest: Cache, now_ns: int) -> list[ArmState]:
    """Return the state of every arm, as of the supervisor's last word."""
    return [ArmState(arm.name, tuple(_problems(latest, arm, now_ns))) for arm in latest.arms.values()]


def _problems(latest: Cache, arm: Arm, now_ns: int) -> list[str]:
    looked_at = (_process_problem(latest, arm.name, role, now_ns) for role in ("acquisition", "estimator"))
    if found := [text for text in looked_at if text]:
        return found
    state = latest.info(arm.name, "acquisition").get("state", "unknown")
    if state == "running":
        text = _no_frames(arm, now_ns) or _no_progress(arm, now_ns)
        return [text] if text else []
    if state == "ended":
        return []
    if state == "held":
        return [f"the source is held: thetad control start arm={arm.name} lets it begin"]
    missing = arm.status.get("acquisition", {}).get("waiting_for", [])
    return [f"the source is {state}" + (f" for {', '.join(missing)}" if missing else "")]


def _process_problem(latest: Cache, arm: str | None, role: str, now_ns: int) -> str:
    process = latest.process(arm, role)
    if process is None:
        return f"nothing is known of the {role} yet"
    if process["state"] != "ready":
        why = f": {process['last_error']}" if process["last_error"] else ""
        return f"the {role} is {process['state']}{why}"
    silence_s = process["silent_s"] + latest.silence_s(now_ns)  # when that was told, and since
    return f"the {role} has not been heard for {silence_s:.1f} s" if silence_s > SILENT_S else ""


def _no_frames(arm: Arm, now_ns: int) -> str:
    age_s = (now_ns - arm.frames_ns) * 1e-9
    if age_s <= FRESH_S:
        return ""
    source: dict[str, Any] = arm.status.get("acquisition", {}).get("source", {})
    said = ", ".join(str(source[key]) for key in ("state", "problem") if source.get(key))
    return f"no frame for {age_s:.1f} s" + (f" ({said})" if said else "")


def _no_progress(arm: Arm, now_ns: int) -> str:
    """Say that frames come and the estimator works none off.

    The age of its newest estimate would not tell: none is due while the arm stands still or a hand guides it.
    """
    age_s = (now_ns - arm.used_ns) * 1e-9
    return f"the estimator has worked off no frame for {age_s:.1f} s" if age_s > FRESH_S else ""


def estimate_age_s(arm: Arm, now_ns: int) -> float | None:
    """Time since the newest frame that the newest estimate rests on was received [s]; None before the first."""
    estimate = arm.estimate
    if estimate is None or not estimate.envelope.t_host_ns:
        return None
    return (now_ns - estimate.envelope.t_host_ns) * 1e-9
