"""One run: of a trajectory, sampled and checked before anything moves, or along a configured motion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rt_core.excitation.constraints import PriorTorque
from rt_core.excitation.unchecked import coupled_motors, torque_gaps
from rt_core.model.robot import RobotModel
from rt_core.safety import (
    Approach,
    SafetyError,
    SafetyLimits,
    Violation,
    check_closed,
    check_path,
    check_positions,
    check_steps,
    check_torque,
)
from rt_core.types import FloatArray
from service.io.trajectory_file import MAX_CYCLES, Trajectory
from service.protocol.control import VERBS

if TYPE_CHECKING:
    from sim_backend.arm.trajectory import Motion  # with kernels that other arms start without

Outcome = Literal["checking", "refused", "checked", "moving", "stopping", "completed", "stopped"]

#: Rows that are sampled or checked between two frames.
_SLICE = 32
#: Of the time in which a run has to be checked: allowance for lost frames and a busy machine.
_SPARE_S = 10.0
#: Approach and one period together; each row is sampled with one frame and checked with another.
MAX_S = 0.5 * _SLICE * (VERBS["run_trajectory"].within_s - _SPARE_S)
_MIN_APPROACH_S = 0.5


@dataclass
class Run:
    """A run: its positions cycle by cycle, and its progress."""

    number: int  # counts the runs of this process
    name: str  # of the trajectory, as the client calls it
    periods: int
    hold: bool  # the arm stays armed at the end
    token: str  # of the permit
    start: int  # cycles of the approach
    period: float  # cycles of one period; infinite: without end
    at: Callable[[float], FloatArray]  # position (n,) after so many cycles; a trajectory has them at whole cycles
    standing: bool = False  # goes on from rest where frames were lost for longer than drives bridge
    outcome: Outcome = "checking"
    reason: str = ""  # why it was refused or stopped
    cycle: float = 0.0  # of the last command; counted on through all periods

    @property
    def cycles(self) -> float:
        """Number of cycles of the whole run."""
        return self.start + self.periods * self.period

    def report(self, period_s: float, reason: str) -> dict[str, Any]:
        """Return progress and outcome, as plain values; `reason` is that of a stop under way."""
        into = max(0.0, self.cycle - self.start)
        return {
            "number": self.number, "trajectory": self.name, "outcome": self.outcome,
            "reason": self.reason or (reason if self.outcome == "stopping" else ""), "t_s": into * period_s,
            "duration_s": self.periods * self.period * period_s, "approach_s": self.start * period_s,
            "period": min(int(into // self.period) + 1, self.periods), "periods": self.periods,
        }  # fmt: skip


class RunCheck:
    """Samples and checks runs of an arm; `pace` are seconds of the arm's cycles a second.

    `share` is that of velocity and acceleration limits that the way to the start may use.
    """

    def __init__(
        self, model: RobotModel, limits: SafetyLimits, period_s: float, share: float, pace: float = 1.0
    ) -> None:
        self._model, self._limits, self._period_s, self._share = model, limits, period_s, share
        self._longest_s = pace * MAX_S
        # Imported now: with the first trajectory it would delay the bus.
        import scipy.interpolate  # noqa: F401

        self._prior = None if model.inertial is None else PriorTorque(model)
        self._torque(np.zeros((3, model.n)))  # compiles

    @property
    def unchecked(self) -> list[str]:
        """Properties of a trajectory that are not checked in advance, in words."""
        limits, model = self._limits, self._model
        open_ = [name for name, most in zip(limits.joints, limits.effort, strict=True) if np.isinf(most)]
        free = [f"torque of {', '.join(open_)}: the robot description does not give an effort limit"] if open_ else []
        return [
            "collisions", *(free if model.inertial is not None else []), *torque_gaps(model), *coupled_motors(model),
        ]  # fmt: skip

    def begin(
        self, number: int, name: str, trajectory: Trajectory, here: FloatArray, *, periods: int, hold: bool, token: str
    ) -> tuple[Run, Iterator[None]]:
        """Return a run from `here` (n,), and its checks: one slice per step, which raises `SafetyError`.

        Raises `SafetyError` if the first point, or the arm's position, is outside the limits, or the motion is too long
        to be checked; `TrajectoryError` if it does not suit the arm's cycle.
        """
        limits, period_s = self._limits, self._period_s
        count = trajectory.cycles(period_s)
        goal = trajectory.positions(np.zeros(1))[0] if trajectory.table is None else trajectory.table[0]
        self._judge(check_positions(limits, period_s, goal[None], 0.0), trajectory)
        way, start = self._approach(here, goal)
        if start > MAX_CYCLES:
            raise SafetyError(
                f"the way to the start takes {way.duration_s:.0f} s, more than {MAX_CYCLES} cycles: bring the arm "
                "nearer, or raise safety.approach"
            )
        if (start + count) * period_s > self._longest_s:
            raise SafetyError(
                f"the way to the start takes {start * period_s:.0f} s and a period {count * period_s:.0f} s: to check "
                f"more than {self._longest_s:.0f} s of motion takes too long; choose a shorter period, or bring the "
                "arm nearer"
            )
        path = np.empty((start + count + 1, limits.n))

        def at(cycle: float) -> FloatArray:
            row = int(cycle)
            return np.asarray(path[row if row <= start else start + (row - start - 1) % count + 1])

        run = Run(number, name, periods, hold, token, start, count, at)
        return run, self._check(run, way, trajectory, path)

    def standing(self, number: int, motion: Motion, here: FloatArray, *, hold: bool) -> Run:
        """Return a standing run along `motion` from `here` (n,), ready to begin; its commands are checked one by one.

        Raises `SafetyError` if the arm's position is outside the limits.
        """
        period_s = self._period_s
        way, start = self._approach(here, motion.sample(0.0)[0])
        period = float(np.ceil(motion.duration_s / period_s)) if np.isinf(motion.period_s) else np.inf

        def at(cycle: float) -> FloatArray:
            return way.at(cycle * period_s) if cycle < start else motion.sample((cycle - start) * period_s)[0]

        return Run(number, "[arm.motion]", 1, hold, "", start, period, at, standing=True, outcome="checked")

    def _approach(self, here: FloatArray, goal: FloatArray) -> tuple[Approach, int]:
        """Return the way from `here` to `goal`, and its cycles; raises `SafetyError` for `here` beyond the limits."""
        found = check_positions(self._limits, self._period_s, here[None])
        if found is not None:
            raise SafetyError(f"where the arm stands: {found}")
        way = Approach(self._limits, here, goal, self._share, _MIN_APPROACH_S)
        return way, int(np.ceil(way.duration_s / self._period_s))

    def _check(self, run: Run, way: Approach, trajectory: Trajectory, path: FloatArray) -> Iterator[None]:
        limits, period_s, start = self._limits, self._period_s, run.start
        count, begins_s = len(path), -start * period_s

        def slices(first: int, last: int) -> Iterator[tuple[int, int]]:
            for k in range(first, last, _SLICE):
                yield k, min(k + _SLICE, last)

        yield
        if trajectory.table is not None:
            step_s = 1.0 / trajectory.rate_hz
            self._judge(check_positions(limits, step_s, trajectory.table, 0.0), trajectory)
            yield
            self._judge(check_steps(limits, step_s, trajectory.table), trajectory)
            yield
            self._judge(check_path(limits, step_s, trajectory.table), trajectory)
            yield
        for first, last in slices(0, start):
            path[first:last] = way.at(np.arange(first, last, dtype=np.float64) * period_s)
            yield
        for first, last in slices(start, count):
            path[first:last] = trajectory.positions(np.arange(first - start, last - start, dtype=np.float64) * period_s)
            self._judge(check_positions(limits, period_s, path[first:last], (first - start) * period_s), trajectory)
            yield
        self._judge(check_path(limits, period_s, path[start:], 0, 2), trajectory)  # names a begin in motion as such
        for first, last in slices(0, count):
            self._judge(check_path(limits, period_s, path, first, last, begins_s), trajectory)
            tau = self._torque(path[np.clip(np.arange(first - 1, last + 1), 0, count - 1)])
            if tau is not None:
                self._judge(check_torque(limits, period_s, tau, begins_s + first * period_s), trajectory)
            yield
        if run.periods > 1:
            self._judge(check_closed(limits, period_s, path[start:]), trajectory)

    def _torque(self, q: FloatArray) -> FloatArray | None:
        """Return the torque (N, n) of the prior model at the inner rows of `q` (N + 2, n); None without one."""
        if self._prior is None:
            return None
        dq = (q[2:] - q[:-2]) / (2.0 * self._period_s)
        ddq = np.diff(q, 2, axis=0) / self._period_s**2
        return self._prior((np.ascontiguousarray(q[1:-1]), dq, ddq))

    def _judge(self, found: Violation | None, trajectory: Trajectory) -> None:
        if found is None:
            return
        text = f"on the way to the start: {found}" if found.at_s is not None and found.at_s < 0.0 else str(found)
        if found.what in ("position", "jump") and self._in_degrees(trajectory):
            text += "; read as degrees all positions would be within the limits: write them in rad"
        raise SafetyError(text)

    def _in_degrees(self, trajectory: Trajectory) -> bool:
        """Return whether numbers seem to be degrees: beyond any turn of the joints, and within limits as such."""
        turning = np.array([unit == "rad" for unit in trajectory.units])
        q = trajectory.table  # as it came: numbers that are too large cannot be joined smoothly
        if q is None:
            q = trajectory.positions(np.linspace(0.0, trajectory.period_s, 200))
        as_degrees = np.where(turning, np.radians(q), q)
        within = check_positions(self._limits, self._period_s, as_degrees) is None
        return within and bool(np.abs(q[:, turning]).max(initial=0.0) > 2.0 * np.pi)
