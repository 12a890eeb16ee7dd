"""Following a trajectory: set positions cycle by cycle, from the approach to rest, or along a stop.

`rt_core.safety` decides what may be commanded. A trajectory is sampled and checked in slices between frames, so that
the bus keeps its cycle, and exactly the checked positions are commanded.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from drivers.driver import Commandable, DriverError
from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from rt_core.safety import PermitError, SafetyError, SafetyLimits, SafetyState, brake, check_commands
from rt_core.types import FloatArray
from service.io.trajectory_file import Trajectory
from service.motion._safety_limits import CommandBounds
from service.motion.trajectory_run import Run, RunCheck

#: Lost time that a run bridges where set positions are sent ahead.
_LOST_S = 0.01
#: Longest wait for the last set position to be reached, beyond the lead, before the drives are switched off.
_SETTLE_S = 0.5
#: Time left of a permit at the end of a run, at least.
_SPARE_S = 1.0
#: Time constant of the return [s], which is that of a critically damped spring. It adds to the acceleration at most
#: 2/_RETURN_S times the missed change of velocity.
_RETURN_S = 0.1
#: The return ends within this distance [rad or m], which over a cycle squared is a negligible acceleration.
_THERE = 1e-9
#: A set position has been reached within this share of a joint's range; drives count in whole numbers.
_REACHED = 1e-5


def bridged_cycles(period_s: float, bridged: int, lead_s: float) -> int:
    """Return the number of cycles without a frame that a run bridges; arguments as of `TrajectoryFollower`."""
    return round(_LOST_S / period_s) if lead_s else bridged


class TrajectoryRejoin:
    """Offset (n,) of set positions from the trajectory, cycle by cycle; zero unless drives have left it."""

    def __init__(self, n: int, period_s: float) -> None:
        self._period_s = period_s
        self._off, self._rate = np.zeros(n), np.zeros(n)

    def __bool__(self) -> bool:
        """Return whether set positions are off the trajectory."""
        return bool(self._off.any() or self._rate.any())

    def begin(self, off: FloatArray, rate: FloatArray) -> None:
        """Begin at the offset `off` (n,), with the relative velocity `rate` (n,)."""
        self._off, self._rate = off.copy(), rate.copy()

    def end(self) -> None:
        """End: set positions are on the trajectory."""
        self._off[:] = self._rate[:] = 0.0

    def next(self) -> FloatArray:
        """Return the offset (n,) of the next set position."""
        if self:
            self._rate -= self._period_s * (2.0 * self._rate / _RETURN_S + self._off / _RETURN_S**2)
            self._off += self._period_s * self._rate
            if max(np.abs(self._off).max(), self._period_s * np.abs(self._rate).max()) < _THERE:
                self.end()
        return self._off.copy()


class TrajectoryFollower:
    """Runs of one arm whose drives follow set positions; an `Activity` of `service.motion._motion_controller`.

    Parameters are those of `MotionController`; `approach` is the share of velocity and acceleration limits on the way
    to a start, and `state` is shared with the other activities. `run` is the last one, `position` (n,) commanded last.
    """

    def __init__(
        self, model: RobotModel, sha256: str, limits: SafetyLimits, state: SafetyState, approach: float,
        period_s: float, bridged: int, lead_s: float, pace: float, bounds: CommandBounds | None,
    ) -> None:  # fmt: skip
        self.run: Run | None = None
        self.position = self._before = np.zeros(model.n)  # commanded last, and before that
        self._model, self._sha256, self._limits, self._state = model, sha256, limits, state
        self._period_s, self._lead_s, self._pace, self._bounds = period_s, lead_s, pace, bounds
        self._max_lost = self._room = bridged_cycles(period_s, bridged, lead_s)  # cycles; what a stop has left of them
        self._checks: Iterator[None] | None = None
        self._rejoin = TrajectoryRejoin(model.n, period_s)
        self._settle_until_s: float | None = None
        self._begin_until_s = 0.0  # deadline for the client's heartbeat after the checks
        self._runs = 0
        self._reach = _REACHED * (limits.upper - limits.lower)
        self._ahead = None if limits.missing else RunCheck(model, limits, period_s, approach, pace)

    @property
    def token(self) -> str:
        """Permit of the last run; empty before the first."""
        return "" if self.run is None else self.run.token

    @property
    def busy(self) -> bool:
        """Whether a run is being checked, waits for its client, or has not settled yet."""
        checked = self.run is not None and self.run.outcome == "checked"
        return checked or self._checks is not None or self._settle_until_s is not None

    @property
    def moving(self) -> bool:
        """Whether a run moves the arm."""
        return self.run is not None and self.run.outcome in ("moving", "stopping")

    @property
    def unchecked(self) -> list[str]:
        """Properties of a trajectory that are not checked in advance, in words."""
        return [] if self._ahead is None else self._ahead.unchecked

    def set_position(self, q: FloatArray) -> None:
        """Set the position (n,) at which the drives hold."""
        self.position = self._before = q.copy()

    def start(
        self, trajectory: Trajectory, token: str, now_s: float, *, periods: int, hold: bool, name: str, changed: bool
    ) -> Run:
        """Begin to check a run; see `MotionController.start`."""
        state, limits = self._state, self._limits
        if self._ahead is None or self.busy:
            raise PermitError("another run is under way")
        trajectory.check_arm(limits.joints, limits.units, self._model.name, self._sha256, changed=changed)
        number = self._runs + 1
        run, checks = self._ahead.begin(
            number, name, trajectory, self.position, periods=periods, hold=hold, token=token
        )
        state.check_permit(token, now_s, self._duration_s(run))
        self._runs, self.run, self._checks = number, run, checks
        self._rejoin.end()
        return run

    def begin(self, now_s: float) -> None:
        """Begin the run if it is checked: its client has sent a heartbeat."""
        run = self.run
        if run is None or run.outcome != "checked":
            return
        try:
            self._state.begin(run.token, now_s, self._duration_s(run))
        except SafetyError as error:
            run.outcome, run.reason = "refused", str(error)
        else:
            run.outcome = "moving"
            self._before, self._room = self.position, self._max_lost

    # ------------------------------------------------------------ while the drives hold

    def wait(self, frame: JointFrame, now_s: float) -> None:
        """Continue the checks of a run, wait for its client, or finish one whose trajectory is over."""
        if self._checks is not None:
            self._continue_checks(now_s)
        elif self.run is not None and self.run.outcome == "checked":
            if now_s > self._begin_until_s:
                waited_s = self._state.heartbeat_s
                self.run.outcome = "refused"
                self.run.reason = f"the client has not been heard of for {waited_s:g} s after the checks"
        elif self._settle_until_s is not None and self._settled(frame, now_s):
            self._settle_until_s = None
            run = self.run
            if run is not None:
                run.outcome = "completed"
                if not run.hold:
                    self._state.off("the run is complete")

    def _continue_checks(self, now_s: float) -> None:
        run = self.run
        assert run is not None
        assert self._checks is not None
        try:
            next(self._checks)
        except StopIteration:
            self._checks = None
            run.outcome = "checked"
            self._begin_until_s = now_s + self._state.heartbeat_s
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a refusal: nothing has moved yet
            self._checks = None
            run.outcome, run.reason = "refused", str(error) or type(error).__name__

    def _settled(self, frame: JointFrame, now_s: float) -> bool:
        assert self._settle_until_s is not None
        if now_s >= self._settle_until_s or frame.setpoint is None:
            return True
        return bool((np.abs(frame.setpoint - self.position) <= self._reach).all())

    def _duration_s(self, run: Run) -> float:
        """Return the time that a permit has to last."""
        return run.cycles * self._period_s / self._pace + self._lead_s + _SPARE_S

    # ------------------------------------------------------------ while the arm moves

    def command(self, frame: JointFrame, driver: Commandable, now_s: float, lost: int) -> None:
        """Give the drives their next set position; `lost` cycles were before this frame."""
        state = self._state
        if lost > self._max_lost:
            reason = f"{lost} cycles were lost, at most {self._max_lost} are bridged"
            if self._lead_s:  # neither their position nor their remaining set positions are known well enough
                state.off(reason)
                return
            state.stop(reason)
            # Drives have come to rest meanwhile, where the last set positions left them.
            self.set_position(self.position if frame.setpoint is None else frame.setpoint)
        elif lost and not self._lead_s:
            self._follow_drives(lost, frame.setpoint)
        apart = 1 + lost if self._lead_s else 1
        for _ in range(2):
            before, wanted = self._next(apart)
            try:
                driver.command(wanted)
            except DriverError as error:
                if state.phase == "stopping":
                    state.off(str(error))
                    return
                state.stop(str(error))
                continue
            self._before, self.position = before, wanted
            break
        self._arrive(frame, now_s)

    def _follow_drives(self, lost: int, reached: FloatArray | None) -> None:
        """Update the state after drives have extrapolated for some cycles, to `reached` (n,) where that is known."""
        run = self.run
        assert run is not None
        step = self.position - self._before
        if self._state.phase == "stopping":
            if reached is not None and lost <= self._room:  # drives may not know the last change of speed: undo it
                most, before = self._limits.acceleration * self._period_s**2, (reached - self.position) / lost
                step = np.where(np.abs(before) > np.abs(step), np.clip(before, step - most, step + most), step)
            self._room -= 1 + lost  # a stop must not take longer and longer
        ahead = self.position + lost * step
        if self._bounds is not None:  # as in the driver; only a stop comes there, which ends there
            ahead = np.clip(ahead, self._bounds.lower, self._bounds.upper)
        self.position = ahead if reached is None else reached  # a driver may count a late cycle as another one
        self._before = self.position - step
        if self._state.phase != "stopping":
            run.cycle = min(run.cycle + lost, run.cycles - 1)
            here = run.row(run.cycle)
            self._rejoin.begin(self.position - here, (step - here + run.row(run.cycle - 1)) / self._period_s)

    def _next(self, apart: int) -> tuple[FloatArray, FloatArray]:
        """Return the set position of the cycle before, and the next one: of the run if it is allowed, else of a stop.

        It is for `apart` cycles after the last one; set positions between them lie on a line.
        """
        run, state, q = self.run, self._state, self.position
        assert run is not None
        if state.phase != "stopping":
            cycle = min(run.cycle + apart, run.cycles)
            wanted = run.row(cycle) + self._rejoin.next()
            line = [q + (wanted - q) * (k / apart) for k in range(1, apart)]
            path = np.stack((self._before, q, *line, wanted))
            found = check_commands(self._limits, self._period_s, path)
            if found is None:
                run.cycle = cycle
                return path[-2], wanted
            state.stop(str(found))
        run.outcome = "stopping"
        wanted, v = brake(self._limits, self._period_s, q, (q - self._before) / self._period_s)
        before = q
        if apart > 1:  # one change of speed for all of the line: `SafetyLimits.blind_s` leaves room for that
            wanted = q + apart * self._period_s * v
            before = wanted - self._period_s * v
        if self._bounds is None:
            return before, wanted
        # Gap after gap may leave no room: a joint stops at its bound, for a refusal would end the stop of all joints.
        held = np.clip(wanted, np.minimum(self._bounds.lower, q), np.maximum(self._bounds.upper, q))
        return np.where(held == wanted, before, held), held

    def _arrive(self, frame: JointFrame, now_s: float) -> None:
        """Handle the end of the approach, of the trajectory, or of a stop."""
        run, state = self.run, self._state
        assert run is not None
        if state.phase == "stopping":
            ahead = self._lead_s > 0.0 and self._settle_until_s is None  # drives still move, whatever is commanded
            if ahead or not np.array_equal(self.position, self._before):
                self._settle_until_s = now_s + self._lead_s + _SETTLE_S
            elif self._settle_until_s is None or self._settled(frame, now_s):
                state.off(state.reason)
            return
        if state.phase == "approach" and run.cycle >= run.start:
            state.arrived()
        if state.phase == "running" and run.cycle >= run.cycles and not self._rejoin:
            state.finished()
            self._settle_until_s = now_s + self._lead_s + _SETTLE_S

    # ------------------------------------------------------------ what came of it

    def close(self) -> None:
        """Finish a run that has been stopped."""
        self._checks = self._settle_until_s = None
        run, reason = self.run, self._state.reason
        if run is None:
            return
        if run.outcome in ("checking", "checked"):
            run.outcome, run.reason = "refused", reason
        elif run.outcome in ("moving", "stopping"):
            run.outcome, run.reason = "stopped", reason

    def report(self) -> dict[str, Any] | None:
        """Return the last run as plain values; None before the first."""
        return None if self.run is None else self.run.report(self._period_s, self._state.reason)
