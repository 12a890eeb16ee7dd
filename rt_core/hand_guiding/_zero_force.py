r"""Zero-force control: an arm in torque mode that hovers and can be guided by hand.

The torque compensates gravity, Coriolis and centrifugal torque and part of the friction of an identified model, with
damping, soft walls and limits (`rt_core.hand_guiding._cycle`).  The controller takes one sample per cycle; time is that
of the samples.  Zhang et al. (hyper-redundant manipulators, IWLS-TCS), section 4.4.

    waiting -> ramping -> guiding -> ramping -> hold_requested -> ended
                                 \-> alarm ----/

When a hold is requested, torque holds the arm as long as samples come, until the caller has closed the brakes or made
the drives hold their positions, and calls `end`.  Every sample is checked in every state: a hold that fails is
loosened, first to the model's torque, then to no torque.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from rt_core.hand_guiding import rows as c
from rt_core.hand_guiding._checks import judge
from rt_core.hand_guiding._cycle import GuidedArm, cycle, put
from rt_core.hand_guiding._limits import limits_of
from rt_core.hand_guiding.model import GuidingModel
from rt_core.model.dynamics import Links
from rt_core.settings import ZeroForceSettings
from rt_core.types import BoolArray, FloatArray

_SOFT_SPEED = 0.7  # share of the speed limit from which braking begins
_SHORT = 0.02  # of the torque limit: largest difference from the wanted torque that does not count as limited
_MIN_STEP = 0.1  # of the period: samples closer than this are the same
_UNFOLLOWED = 0.1  # of the torque limit: largest difference of a drive's torque from its command
_RUNAWAY = 2.0  # times the speed limit: a hold that is faster has failed

_UNUSABLE = {
    c.UNUSABLE: "no finite sample", c.ABSURD: "velocity or torque that no joint has", c.JUMPED: "position jumps",
    c.FROZEN: "measured torque stands still in all joints",
}  # fmt: skip


class Sample(Protocol):
    """Fields of `drivers.frame.JointFrame` that a cycle needs."""

    t_bus_ns: int
    q: FloatArray | None
    dq: FloatArray | None
    tau: FloatArray | None
    valid: BoolArray | None


class GuidingState(StrEnum):
    """State of a session."""

    WAITING = "waiting"
    """For the first sample, without torque."""
    RAMPING = "ramping"
    """From the hold to guiding, or back on request."""
    GUIDING = "guiding"
    ALARM = "alarm"
    """To the hold, after a fault."""
    HOLD_REQUESTED = "hold_requested"
    """Brakes or drives should hold the arm now."""
    ENDED = "ended"


@dataclass(frozen=True)
class ZeroForceStatus:
    """Status of a session; arrays are (n,)."""

    state: GuidingState
    reason: str  # why the state is not `guiding`; may be empty
    later: tuple[str, ...]  # later findings, each once
    joint: str | None  # joint of an alarm
    value: float  # that raised an alarm; NaN without one
    limit: float  # of `value`; NaN without an alarm
    share: float  # 0 while holding, 1 while guiding
    velocity: FloatArray  # velocity used by the controller [rad/s or m/s]
    torque: FloatArray  # of the last cycle [N*m or N]
    residual: FloatArray  # external torque by the model [N*m or N]
    # lasting residual from which the model counts as not valid; larger while a joint stands, by its friction
    margin: FloatArray
    residual_time_s: FloatArray  # time for which the residual has been above it [s]


class ZeroForceController:
    """Controller of an arm that is guided by hand; the constructor compiles its kernels.

    Parameters
    ----------
    model : GuidingModel
    settings : ZeroForceSettings, optional
    period_s : float, optional
        Time between samples [s].

    Raises
    ------
    ValueError
        If a list has the wrong length, a joint has no torque, speed or position limit, the period is too long, or
        damping too strong for the delay.
    """

    def __init__(self, model: GuidingModel, settings: ZeroForceSettings | None = None, period_s: float = 1e-3) -> None:
        self.model = model
        self.settings = s = ZeroForceSettings() if settings is None else settings
        if not 0.0 < period_s <= 0.5 * s.braking_time_s:
            raise ValueError(f"period_s must be positive and at most half of braking_time_s, not {period_s}")
        self.period_s = period_s
        n = model.n
        self._limits = limits_of(model, s, period_s)
        gravity = np.array(model.model.gravity, dtype=np.float64)
        links = Links(model.arm[:, :37], gravity, model.arm[:, 37:])
        self._arm = GuidedArm(links, model.rotor, model.effects, model.coordinates, self._limits)
        self._scalars = np.zeros(c.SCALARS)
        self._scalars[c.FRICTION_SHARE] = s.compensated_share
        self._scalars[c.RESIDUAL_FILTER] = s.residual_filter_s
        self._scalars[c.DISCOUNT] = math.exp(-2.0 * math.pi * s.observer_hz * period_s)
        self._scalars[c.DELAY] = s.delay_cycles
        self._scalars[c.SOFT_SPEED], self._scalars[c.SHORT] = _SOFT_SPEED, _SHORT
        self._scalars[c.UNFOLLOWED], self._scalars[c.FROZEN_AFTER] = _UNFOLLOWED, s.frozen_s
        self._sample = np.zeros((c.SAMPLE_ROWS, n))
        self._state = np.zeros((c.STATE_ROWS, n))
        self._scratch = np.zeros((2 * n + c.SCRATCH_ROWS, max(n, 37)))
        self._finding = np.zeros(3)
        self._wanted = np.zeros(n)
        self._state_name, self._grip, self._refused = GuidingState.WAITING, c.HOLD, False
        self._later: dict[str, str] = {}
        self._kind = ""  # of the reason
        self._reason, self._joint, self._value, self._limit = "no sample yet", -1, math.nan, math.nan
        self._phase = 0.0  # of the ramp into guiding
        self._watched_s = 0.0
        self._share, self._before, self._down_s = 0.0, 1.0, 0.0
        self._last_ns: int | None = None
        self._missing_s = 0.0
        self._implausible = False  # one of a series of samples was impossible
        self._velocity_trusted = True
        self._warm_up()

    @property
    def state(self) -> GuidingState:
        """State of the session."""
        return self._state_name

    @property
    def status(self) -> ZeroForceStatus:
        """Status after the last cycle."""
        state = self._state
        return ZeroForceStatus(
            self._state_name, self._reason, tuple(self._later.values()),
            None if self._joint < 0 else self.model.model.joints[self._joint].name, self._value, self._limit,
            self._share, state[c.V].copy(), state[c.OUT].copy(), state[c.RESIDUAL].copy(), state[c.THRESHOLD].copy(),
            state[c.RESIDUAL_TIME].copy(),
        )  # fmt: skip

    @property
    def holds(self) -> bool:
        """Whether torque has held the arm in place, so that its position can be taken over by brakes or drives.

        False if positions jump, or come with old or impossible values: their age is then unknown.
        """
        return self._grip == c.HOLD and not (self._refused or self._implausible) and self._last_ns is not None

    def stop(self, reason: str = "stopped", *, at_once: bool = False) -> None:
        """Go from guiding to the hold, slowly or, if `at_once`, as after an alarm."""
        if self._state_name is GuidingState.WAITING:
            self._leave(GuidingState.HOLD_REQUESTED, "stop", reason)
        elif self._state_name in (GuidingState.RAMPING, GuidingState.GUIDING):
            if self._down_s == 0.0:
                self._state_name, self._reason, self._down_s = GuidingState.RAMPING, reason, self.settings.ramp_s
            if at_once:
                self._down_s = min(self._down_s, self.settings.alarm_ramp_s)

    def end(self) -> None:
        """End the session without torque: something else holds the arm."""
        self._state_name = GuidingState.ENDED
        self._state[c.OUT] = 0.0

    def step(self, sample: Sample | None) -> FloatArray:
        """Return the joint torque (n,) [N*m or N] for the next cycle; `sample` is None if it is missing.

        The torque is zero before the first sample, and stays so if that one is unusable or shows a fault.  Drives may
        be in torque mode as soon as the state is `ramping`. Raises `ValueError` if a channel has the wrong length.
        """
        if self._state_name is GuidingState.ENDED or self._refused:
            return np.zeros(self.model.n)
        if sample is None or not self._take(sample):
            return self._miss("no sample")
        s, scalars, first = self.settings, self._scalars, self._last_ns is None
        if first and self._missing_s > 0.0:  # torque would step from zero
            self._leave(GuidingState.HOLD_REQUESTED, "missing", "samples before the first usable one were none")
            return self._torque()
        since = self.period_s if self._last_ns is None else 1e-9 * (sample.t_bus_ns - self._last_ns)
        if since < 0.0 and self._missing_s >= s.missing_s:  # the clock was set back: continue with its time
            since = self._missing_s + self.period_s
        elif since <= _MIN_STEP * self.period_s:
            return self._miss("samples whose time does not go on", implausible=True)
        late = since > s.missing_s
        scalars[c.SINCE], scalars[c.DT] = since, min(since, s.missing_s)
        # a late sample may be due to a set clock: torque then gets the time of one cycle
        scalars[c.STEP] = self.period_s if late else max(since - self._missing_s, 0.0)
        scalars[c.FIRST], scalars[c.LATE], scalars[c.GRIP] = float(first), float(late), self._grip
        scalars[c.GUIDING_SHARE], scalars[c.BEFORE_SHARE] = self._share, self._before
        found = cycle(self._arm, scalars, self._sample, self._state, self._scratch, self._finding)
        if found != c.GOOD:
            where = "" if found == c.FROZEN else f"{self.model.model.joints[int(self._finding[0])].name}: "
            return self._miss(where + _UNUSABLE[found], implausible=found != c.UNUSABLE, jumped=found == c.JUMPED)
        self._last_ns, self._missing_s = sample.t_bus_ns, 0.0
        self._implausible &= self._state_name is GuidingState.HOLD_REQUESTED
        if late:
            self._leave(GuidingState.ALARM, "late", f"no sample for {1e3 * since:.3g} ms")
        if not first:
            self._ramp(float(scalars[c.DT]))
        self._judge(first)
        return self._torque()

    def _warm_up(self) -> None:
        """Compile the kernels, or load them from the cache, on copies of the state."""
        state, finding = self._state.copy(), self._finding.copy()
        scalars = self._scalars.copy()
        scalars[[c.SINCE, c.DT, c.STEP, c.FIRST]] = self.period_s, self.period_s, self.period_s, 1.0
        cycle(self._arm, scalars, self._sample, state, self._scratch, finding)
        judge(self._limits, state, self.settings.residual_time_s, self.settings.limited_s, finding)
        put(self._limits, state, self._wanted, self.period_s)

    def _torque(self) -> FloatArray:
        out: FloatArray = self._state[c.OUT].copy()
        return out

    def _take(self, sample: Sample) -> bool:
        """Copy the channels; return whether the sample is usable."""
        if sample.q is None or (sample.valid is not None and not sample.valid.all()):
            return False
        scalars, n = self._scalars, self.model.n
        scalars[c.HAS_DQ] = float(sample.dq is not None and self._velocity_trusted)
        scalars[c.HAS_TAU] = float(sample.tau is not None)
        for row, values in enumerate((sample.q, sample.dq, sample.tau)):
            if values is not None:
                if values.shape != (n,):
                    raise ValueError(f"a sample has a channel of shape {values.shape}, the model has {n} joints")
                self._sample[row] = values
        return True

    def _miss(self, why: str, implausible: bool = False, jumped: bool = False) -> FloatArray:
        """Count a cycle without a usable sample: fade velocity-dependent torque, then request a hold."""
        self._implausible |= implausible
        missing = self.settings.missing_s
        before = 1.0 - self._missing_s / missing
        self._missing_s += self.period_s
        left = 1.0 - self._missing_s / missing
        over = left < 1e-9
        model, out = self._state[c.MODEL], self._state[c.OUT]
        self._wanted[:] = 0.0 if self._grip == c.NOTHING else model + (0.0 if over else left / before) * (out - model)
        put(self._limits, self._state, self._wanted, self.period_s)
        if over:
            if jumped:  # the position of the arm is unknown
                self._grip = max(self._grip, c.WEIGHT)
            self._leave(GuidingState.HOLD_REQUESTED, "missing", f"{why} for {1e3 * self._missing_s:.3g} ms")
        return self._torque()

    def _ramp(self, dt: float) -> None:
        """Advance the shares of guiding and of the initial torque by one cycle."""
        if self._down_s > 0.0:
            self._share = max(0.0, self._share - dt / self._down_s)
            self._before = max(0.0, self._before - dt / self._down_s)
            if self._share == 0.0:
                self._state_name = GuidingState.HOLD_REQUESTED
        elif self._phase < 1.0:
            self._phase = min(1.0, self._phase + dt / self.settings.ramp_s)
            self._share = self._phase * self._phase * (3.0 - 2.0 * self._phase)
            self._before = 1.0 - self._share
        elif self._state_name is GuidingState.RAMPING:
            self._watched_s += dt
            if self._watched_s >= self.settings.takeover_watch_s:
                self._state_name, self._reason = GuidingState.GUIDING, ""

    def _leave(self, state: GuidingState, kind: str, reason: str) -> bool:
        """Go towards the hold, never back; return whether `reason` is the first one, which is kept."""
        first = self._state_name not in (GuidingState.ALARM, GuidingState.HOLD_REQUESTED)
        if first:
            self._kind, self._reason = kind, reason
        elif kind != self._kind:
            self._later.setdefault(kind, reason)
        if self._state_name is GuidingState.WAITING:
            self._state_name, self._grip, self._refused = GuidingState.HOLD_REQUESTED, c.NOTHING, True
            self._state[c.OUT] = 0.0
        elif state is GuidingState.HOLD_REQUESTED:
            self._state_name, self._share, self._before = state, 0.0, 0.0
        elif first:
            self._state_name, self._down_s = state, self.settings.alarm_ramp_s
        return first

    def _judge(self, first: bool) -> None:
        """Check a cycle; the first one at once, while the drives still hold the arm."""
        s = self.settings
        if self._grip == c.NOTHING:
            return
        taking_over = self._phase < 1.0 or self._watched_s < s.takeover_watch_s
        residual_s, limited_s = s.takeover_residual_s if taking_over else s.residual_time_s, s.limited_s
        if first:
            residual_s = limited_s = 0.5 * self.period_s
        found = judge(self._limits, self._state, residual_s, limited_s, self._finding)
        if found != c.GOOD:
            self._find(found)
        elif first:
            self._state_name, self._reason = GuidingState.RAMPING, "taking over"

    def _find(self, found: int) -> None:
        runaway = found == c.TOO_FAST and self._finding[1] > _RUNAWAY * self._finding[2]
        lost = found == c.NOT_FOLLOWED or (runaway and self._state_name is GuidingState.HOLD_REQUESTED)
        reason = self._describe(found) + ("; torque goes to zero, brake at once" if lost else "")
        if self._leave(GuidingState.HOLD_REQUESTED if lost else GuidingState.ALARM, f"{found} {lost}", reason):
            self._joint, self._value, self._limit = (int(self._finding[0]), *map(float, self._finding[1:]))
        if lost:
            self._grip = c.NOTHING
        if found == c.DISAGREEING:  # use the velocity of the positions from now on
            self._velocity_trusted = False
            self._state[[c.V, c.ACCELERATION, c.APART]] = 0.0

    def _describe(self, found: int) -> str:
        joint, value, limit = int(self._finding[0]), float(self._finding[1]), float(self._finding[2])
        model = self.model.model.joints[joint]
        angle, torque = ("rad", "N*m") if model.kind == "revolute" else ("m", "N")
        return {
            c.TOO_FAST: f"{model.name} moves at {value:.3g} {angle}/s, its limit is {limit:.3g}",
            c.BEYOND: f"{model.name} is at {value:.4g} {angle}, beyond its limit of {limit:.4g}",
            c.UNEXPLAINED: (
                f"model not valid: for {self._state[c.RESIDUAL_TIME, joint]:.3g} s the torque residual of "
                f"{model.name} was above its friction margin, at last {abs(value):.3g} against {limit:.3g} {torque}"
            ),
            c.DISAGREEING: (
                f"measured velocity of {model.name} is not that of its position: {value:.3g} and {limit:.3g} "
                f"{angle}/s; check its sign and scale"
            ),
            c.NOT_FOLLOWED: (
                f"{model.name} gives {value:.4g} {torque} where {limit:.4g} was asked for: check the sign and "
                "scale of its torque, and that its drive is in torque mode"
            ),
            c.LIMITED: f"{model.name} needs more torque than it may have: {value:.4g} of {limit:.4g} {torque}",
        }[found]
