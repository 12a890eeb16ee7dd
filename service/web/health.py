"""Is the daemon alive, and is each arm at work: what `/healthz` and `/readyz` answer, from what is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from service.web.latest import Arm, Latest

SILENT_S = 3.0  # so long without a word from the supervisor, which speaks twice a second, or a process: four times
FRESH_S = 3.0  # the newest frame and the newest estimate may be so old


@dataclass(frozen=True)
class ArmState:
    """Whether an arm is at work, and if not, everything that is wrong, in words."""

    arm: str
    problems: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def silent(latest: Latest, now_ns: int) -> str:
    """Say that the supervisor is silent; an empty text if it is not."""
    silence_s = latest.silence_s(now_ns)
    return f"the supervisor has been silent for {silence_s:.1f} s" if silence_s > SILENT_S else ""


def arm_states(latest: Latest, now_ns: int) -> list[ArmState]:
    """Return the state of every arm, as of the supervisor's last word."""
    return [ArmState(arm.name, tuple(_problems(latest, arm, now_ns))) for arm in latest.arms.values()]


def _problems(latest: Latest, arm: Arm, now_ns: int) -> list[str]:
    found = []
    for role in ("acquisition", "estimator"):
        process = latest.process(arm.name, role)
        if process is None:
            found.append(f"nothing is known of the {role} yet")
        elif process["state"] != "ready":
            why = f": {process['last_error']}" if process["last_error"] else ""
            found.append(f"the {role} is {process['state']}{why}")
        elif process["silent_s"] > SILENT_S:
            found.append(f"the {role} has been silent for {process['silent_s']:.1f} s")
    if found:
        return found
    state = latest.info(arm.name, "acquisition").get("state", "unknown")
    if state == "running":
        return [text for text in (_no_frames(arm, now_ns), _no_estimates(arm, now_ns)) if text]
    if state == "ended":
        return []
    if state == "held":
        return [f"the source is held: thetad control start arm={arm.name} lets it begin"]
    missing = arm.status.get("acquisition", {}).get("waiting_for", [])
    return [f"the source is {state}" + (f" for {', '.join(missing)}" if missing else "")]


def _no_frames(arm: Arm, now_ns: int) -> str:
    age_s = (now_ns - arm.frames_ns) * 1e-9
    if age_s <= FRESH_S:
        return ""
    source: dict[str, Any] = arm.status.get("acquisition", {}).get("source", {})
    said = ", ".join(str(source[key]) for key in ("state", "problem") if source.get(key))
    return f"no frame for {age_s:.1f} s" + (f" ({said})" if said else "")


def _no_estimates(arm: Arm, now_ns: int) -> str:
    guiding = (arm.status.get("acquisition", {}).get("safety") or {}).get("guiding") or {}
    if guiding.get("outcome") in ("guiding", "stopping"):  # nothing is learned from a hand
        return ""
    age_s = estimate_age_s(arm, now_ns)
    if age_s is None:
        return "there is no estimate yet"
    return f"the newest estimate rests on a frame that is {age_s:.1f} s old" if age_s > FRESH_S else ""


def estimate_age_s(arm: Arm, now_ns: int) -> float | None:
    """Time since the newest frame that the newest estimate rests on was received [s]; None before the first."""
    estimate = arm.estimate
    if estimate is None or not estimate.envelope.t_host_ns:
        return None
    return (now_ns - estimate.envelope.t_host_ns) * 1e-9
