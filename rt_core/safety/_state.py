"""State machine of the permission to move: a permit, a heartbeat, and the phases between off and motion.

Phases are disarmed, arming (the drives are being switched on), armed, approach and running, or guiding.  A stop in one
of the last three leads through stopping back to disarmed; any other end leads there directly.
"""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from rt_core.safety._limits import PermitError

Phase: TypeAlias = Literal["disarmed", "arming", "armed", "approach", "running", "guiding", "stopping"]

#: Phases in which the client with the permit moves the arm and must send heartbeats.
_LED: frozenset[Phase] = frozenset(("approach", "running", "guiding"))
#: Phases in which the arm moves.
MOVING: frozenset[Phase] = _LED | {"stopping"}


@dataclass(frozen=True)
class Permit:
    """Permission to start one run or session of guiding, and to move until it expires.

    `token` is the secret that proves it, `used` whether a run has been started with it.
    """

    token: str
    expires_s: float
    used: bool = False

    def left_s(self, now_s: float) -> float:
        """Return the remaining time [s]."""
        return max(0.0, self.expires_s - now_s)


class SafetyState:
    """State of the permission to move an arm.

    Motion needs a permit, which `arm` grants for a limited time and for one run or session of guiding.  While the arm
    follows a trajectory or is guided, its client must send heartbeats.  Every stop disarms the arm.

    Parameters
    ----------
    heartbeat_s : float
        Longest time between heartbeats of the client.
    silence_s : float
        Longest time without a frame in which all joints have valid values.

    Attributes
    ----------
    phase : str
    reason : str
        Reason of the last stop or disarming; `arm` clears it.
    permit : Permit or None
    """

    def __init__(self, heartbeat_s: float, silence_s: float) -> None:
        self.heartbeat_s, self.silence_s = heartbeat_s, silence_s
        self.phase: Phase = "disarmed"
        self.reason = "it has not been armed"
        self.permit: Permit | None = None
        self._heartbeat_s = 0.0
        self._stopped_permit: Permit | None = None  # of the motion that is being stopped

    @property
    def moving(self) -> bool:
        """Whether the arm may move."""
        return self.phase in MOVING

    def arm(self, token: str, now_s: float, for_s: float) -> Permit:
        """Grant a permit for `for_s` and revoke earlier ones; the arm is armed when its drives are on (`on`).

        Raises `PermitError` if the arm moves.
        """
        if self.moving:
            raise PermitError(f"the arm is in state '{self.phase}': abort the run, or wait for its end")
        self.permit = Permit(token, now_s + for_s)
        self.reason = ""
        if self.phase != "armed":
            self.phase = "arming"
        return self.permit

    def on(self) -> None:
        """Register that the drives are on and hold."""
        if self.phase == "arming":
            self.phase = "armed"

    def check_permit(self, token: str, now_s: float, duration_s: float = 0.0) -> None:
        """Raise `PermitError` unless a run of `duration_s` may be started with `token` now."""
        permit = self.permit
        if self.phase != "armed" or permit is None:
            why = f" ({self.reason})" if self.reason else ""
            raise PermitError(f"the arm is in state '{self.phase}'{why}: arm it first")
        if token != permit.token:
            raise PermitError("this is not the permit that was granted last: arm again for another")
        if permit.used:
            raise PermitError("the permit has served for a run already: arm again for another")
        left_s = permit.left_s(now_s)
        if left_s <= 0.0:
            raise PermitError("the permit has expired: arm again")
        if duration_s > left_s:
            raise PermitError(
                f"the run takes {duration_s:.1f} s and the permit is good for {left_s:.1f} s more: arm for longer"
            )

    def begin(
        self, token: str, now_s: float, duration_s: float, phase: Literal["approach", "guiding"] = "approach"
    ) -> None:
        """Start a run with its approach, or guiding; raises `PermitError` as `check_permit` does."""
        self.check_permit(token, now_s, duration_s)
        assert self.permit is not None
        self.permit = replace(self.permit, used=True)
        self.phase, self._heartbeat_s = phase, now_s

    def heartbeat(self, token: str, now_s: float) -> None:
        """Register a heartbeat of the client; raises `PermitError` for another token."""
        permit = self._stopped_permit if self.phase == "stopping" else self.permit
        if permit is not None and token != permit.token:
            raise PermitError("this is not the permit of the run that is under way")
        self._heartbeat_s = max(self._heartbeat_s, now_s)

    def overdue(self, now_s: float, frame_s: float, *, stopping: bool = False) -> str:
        """Return the deadline that has passed, as a reason to stop; empty if none has.

        `frame_s` is the time of the last frame in which all joints had valid values.  With `stopping` a stop is checked
        as well, to end it at once.
        """
        if self.phase == "disarmed" or (self.phase == "stopping" and not stopping):
            return ""
        permit = self._stopped_permit if self.phase == "stopping" else self.permit
        if now_s - frame_s > self.silence_s:
            return f"no frame with values of all joints for {now_s - frame_s:.3g} s, at most {self.silence_s:g} s"
        if permit is not None and now_s >= permit.expires_s:
            return "the permit has expired"
        silent_s = now_s - self._heartbeat_s
        if self.phase in MOVING and silent_s > self.heartbeat_s:
            return f"the client has not been heard of for {silent_s:.3g} s, at most {self.heartbeat_s:g} s"
        return ""

    def arrived(self) -> None:
        """Register the end of the approach."""
        if self.phase == "approach":
            self.phase = "running"

    def finished(self) -> None:
        """Register the end of the trajectory: the arm holds, and its permit has been used."""
        if self.phase == "running":
            self.phase = "armed"

    def stop(self, reason: str) -> None:
        """Stop along the ramp if the arm moves, else disarm at once.  The first reason stays."""
        if self.phase in _LED:
            self.phase, self.reason, self._stopped_permit, self.permit = "stopping", reason, self.permit, None
        elif self.phase in ("arming", "armed"):
            self.off(reason)

    def off(self, reason: str) -> None:
        """Disarm at once: a stop is complete, or nothing can be commanded.

        The first reason stays; what ends a stop before it is complete is appended.
        """
        if self.phase == "stopping" and reason != self.reason:
            self.reason += f"; then {reason}"
        elif self.phase != "disarmed":
            self.reason = reason
        self.phase, self.permit = "disarmed", None
