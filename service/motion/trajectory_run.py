"""One run of a trajectory: sampled at the arm's cycle from its position, and checked before anything moves."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

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
    """A run: its commands cycle by cycle, and its progress."""

    number: int  # counts the runs of this process
    name: str  # of the trajectory, as the client calls it
    trajectory: Trajectory
    periods: int
    hold: bool  # the arm stays armed at the end
    token: str  # of the permit
    path: FloatArray  # (N, n), approach and one period, a command a cycle; the first is where the arm stands
    start: int  # row at which the trajectory begins
    outcome: Outcome = "checking"
    reason: str = ""  # why it was refused or stopped
    cycle: int = 0  # which command was given last; counted on through all periods

    @property
    def period(self) -> int:
        """Number of cycles of one period."""
        return len(self.path) - 1 - self.start

    @property
    def cycles(self) -> int:
        """Number of cycles of the whole run."""
        return self.start + self.periods * self.period

    def row(self, cycle: int) -> FloatArray:
        """Return command number `cycle` of the run, (n,)."""
        if cycle > self.start:
            cycle = self.start + (cycle - self.start - 1) % self.period + 1
        return np.asarray(self.path[cycle])

    def report(self, period_s: float, reason: str) -> dict[str, Any]:
        """Return progress and outcome, as plain values; `reason` is that of a stop under way."""
        into = max(0, self.cycle - self.start)
        return {
            "number": self.number, "trajectory": self.name, "outcome": self.outcome,
            "reason": self.reason or (reason if self.outcome == "stopping" else ""), "t_s": into * period_s,
            "duration_s": self.periods * self.period * period_s, "approach_s": self.start * period_s,
            "period": min(into // self.period + 1, self.periods), "periods": self.periods,
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
        self._judge(check_positions(limits, period_s, here[None]), trajectory)
        goal = trajectory.positions(np.zeros(1))[0] if trajectory.table is None else trajectory.table[0]
        self._judge(check_positions(limits, period_s, goal[None], 0.0), trajectory)
        way = Approach(limits, here, goal, self._share, _MIN_APPROACH_S)
        start = int(np.ceil(way.duration_s / period_s))
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
        run = Run(number, name, trajectory, periods, hold, token, path, start)
        return run, self._check(run, way)

    def _check(self, run: Run, way: Approach) -> Iterator[None]:
        limits, period_s, path, start, trajectory = self._limits, self._period_s, run.path, run.start, run.trajectory
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
        if found.at_s is None and found.what not in ("start", "end", "closing"):
            raise SafetyError(f"where the arm stands: {found}")
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
