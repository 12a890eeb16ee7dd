"""The online estimator of one arm: frames in, parameters with honest uncertainties out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rt_core.model.base import BaseParameters, base_parameters
from rt_core.model.robot import RobotModel
from rt_core.model.temperature import TemperatureRange
from rt_core.online import _state as m
from rt_core.online._initial_state import start_memory
from rt_core.online._latest_sample import NewestSample, filtered_torque, newest_sample
from rt_core.online._metadata import describe
from rt_core.online._pipeline import restart_stream, take_frame
from rt_core.online._saved_state import STATE_FORMAT, take_saved
from rt_core.online._settings import OnlineSettings
from rt_core.online._stationary_torque import standing
from rt_core.online.checkpoint import Checkpoint
from rt_core.online.filters import filter_bank, low_pass
from rt_core.online.monitors.residual_evidence import Evidence
from rt_core.online.monitors.stuck_encoder import Standing
from rt_core.online.monitors.temperatures import JointTemperatures
from rt_core.online.report import EstimateReport
from rt_core.online.rls.information_floor import hold_on, root_of, row_inflation
from rt_core.online.rls.information_matrix import root_of_covariance, triangle_inverse
from rt_core.online.status import BELIEVED, EXCITED_LIMIT, FROZEN_S, STATUS, judge, supported
from rt_core.types import BoolArray, FloatArray

_ROUNDING = 1e-9  # of the largest parameter: as far apart, and two models are the same


class OnlineEstimator:
    """Square-root recursive least squares with variable forgetting over the base parameters of an arm.

    Parameters
    ----------
    model : RobotModel
    settings : OnlineSettings
    rate_hz : float
        Nominal rate of the frames; frames that jitter about it are interpolated to a uniform grid.
    has_dq : bool
        Frames carry a measured joint velocity.
    prior : (p,) float64 or None
        Base parameters to start from; zero if None.
    base : BaseParameters or None
        Base parameters of `model`, if they have been computed before.

    Raises
    ------
    ValueError
        If the settings do not fit the rate or the number of joints.
    """

    def __init__(
        self,
        model: RobotModel,
        settings: OnlineSettings,
        rate_hz: float,
        *,
        has_dq: bool = False,
        prior: FloatArray | None = None,
        base: BaseParameters | None = None,
    ) -> None:
        if not rate_hz > 0.0:
            raise ValueError(f"the frame rate must be positive, not {rate_hz}")
        self.model = model
        self.settings = settings
        self.rate_hz = float(rate_hz)
        self.base = base_parameters(model) if base is None else base
        self.has_dq = has_dq
        #: Friction follows temperature: frames need the temperature of the joints.
        self.has_temperature = self.base.layout.has_temperature
        self.factor = max(1, round(rate_hz / settings.update_hz))
        self.bank = filter_bank(settings.cutoff_hz, rate_hz)
        self.parallel = low_pass(settings.cutoff_hz, rate_hz) if self.factor > 1 else np.ones(1)
        self.prior = np.zeros(len(self.base)) if prior is None else np.asarray(prior, dtype=np.float64)
        if self.prior.shape != (len(self.base),):
            raise ValueError(f"the prior has {self.prior.size} values for {len(self.base)} base parameters")
        self.update_s = self.factor / self.rate_hz
        self._describe()
        self._origin_ns: int | None = None
        self._seq: int | None = None
        self._begun = False
        self._lost = 0
        self._resets = 0
        self._active: FloatArray | None = None
        self._frame = np.zeros(model.n * (2 + has_dq + self.has_temperature))
        self._warmth = JointTemperatures(model.n)
        self._turned_by = model.coupling != 0.0  # motors by joints
        self._generation = 0  # of estimates that began from something else
        self._initialise()

    # -- construction ---------------------------------------------------------------------------

    def _describe(self) -> None:
        """Renew `meta`, what a subscriber needs to know, and `state_hash`, what a saved state must agree with.

        The velocity constants of friction are part of the first only: a state brings its own.
        """
        self.state_hash, self.meta = describe(
            self.model, self.base, self.settings, self.rate_hz, self.factor, self.has_dq, self.delay_s
        )

    @property
    def delay_s(self) -> float:
        """Group delay of an estimate [s]: both filters and one frame of interpolation."""
        return (self.bank.delay + self.parallel.size // 2 + 1) / self.rate_hz

    def _fresh(self) -> tuple[m.Memory, FloatArray]:
        return start_memory(
            self.model, self.base, self.settings, self.rate_hz, self.has_dq, self.bank, self.parallel, self.factor,
            self.prior,
        )  # fmt: skip

    def _initialise(self) -> None:
        self._generation += 1
        self._memory, self._start = self._fresh()
        p = len(self.base)
        self._validated = np.full(p, np.nan)
        self._excited_at = np.full(p, -np.inf)
        self._moved = self._memory["moved"].copy()
        self._warmth.learned_at(None)
        self._watch_active()

    def warm_up(self) -> None:
        """Compile every kernel, without touching the estimate."""
        copy = OnlineEstimator(
            self.model, self.settings, self.rate_hz, has_dq=self.has_dq, prior=self.prior, base=self.base
        )
        rng = np.random.default_rng(0)
        for k in range(self.bank.smooth.size + self.parallel.size + 3 * self.factor + 8):
            q, dq, tau = rng.standard_normal((3, self.model.n))
            copy.step(int(k * 1e9 / self.rate_hz), k, q, tau, None, dq if self.has_dq else None, np.full(q.size, 25.0))
        copy.report()
        copy.torque()
        copy.mark_gap(1)

    # -- frames ---------------------------------------------------------------------------------

    def step(
        self,
        t_ns: int,
        seq: int,
        q: FloatArray,
        tau: FloatArray,
        valid: BoolArray | None = None,
        dq: FloatArray | None = None,
        temperature: FloatArray | None = None,
        masked: bool = False,
    ) -> bool:
        """Take one frame; True if the parameters were renewed.

        A frame with an invalid joint or a value that is not finite is masked, and so is one that is `masked`: it is
        counted and left out, and bridged like a missing one.  `dq` (n,) is required if `has_dq`.

        `temperature` (n,) [degC] counts if `has_temperature`.  Drives tell it seldom: one that is None or NaN, cannot
        be (`rt_core.model.temperature.possible`) or is of an invalid joint is that of the frame before, for 10 s.
        After that frames are masked, and friction is invalid, until one comes.
        """
        if self._seq is not None and seq > self._seq + 1:
            self._lost += seq - self._seq - 1
            self._memory.ints[m.LOSS] = 1
        self._seq, self._begun = seq, True
        if self._origin_ns is None:
            self._origin_ns = t_ns
        n = self.model.n
        frame = self._frame
        frame[:n] = q
        frame[n : 2 * n] = tau
        if self.has_dq:
            if dq is None:
                raise ValueError("this estimator was made for frames with a measured velocity, and the frame has none")
            frame[2 * n : 3 * n] = dq
        memory = self._memory
        known = True
        if self.has_temperature:
            if temperature is not None and valid is not None:
                temperature = np.where(valid, temperature, np.nan)
            known = self._warmth.take(t_ns, temperature)
            frame[-n:] = self._warmth.values
        if masked or not known or (valid is not None and not valid.all()):
            memory.ints[m.MASKED] += 1
            memory.ints[m.LOSS] = 1
            return False
        t = (t_ns - self._origin_ns) * 1e-9
        renewed = bool(take_frame(memory.floats, memory.ints, t, frame))
        if renewed and self.has_temperature:
            self._learn_temperatures()
        if renewed and memory.ints[m.UPDATES] - memory.ints[m.LEAK_SET] >= memory.ints[m.LEAK_EVERY]:
            hold_on(memory, self._start)
        return renewed

    def _learn_temperatures(self) -> None:
        """Count the present temperatures of the motors that a row of this update tells of."""
        moved = self._memory["moved"]
        rows = moved != self._moved
        self._moved = moved.copy()
        self._warmth.learned((self._turned_by & rows).any(axis=1))

    @property
    def learns_change(self) -> BoolArray:
        """(n,) joints whose innovations were larger than usual when they moved last: the estimate is not theirs yet."""
        return np.asarray(self._memory["excess"] > 0.0)

    @property
    def lacks_temperature(self) -> BoolArray:
        """(n,) joints whose temperature is needed and not known."""
        return self._warmth.lacking if self.has_temperature else np.zeros(self.model.n, dtype=np.bool_)

    @property
    def has_frames(self) -> bool:
        """Whether a frame has come since the start."""
        return self._begun

    @property
    def refused_temperatures(self) -> int:
        """How many temperatures cannot be, and were left out."""
        return self._warmth.refused

    @property
    def temperature(self) -> FloatArray | None:
        """(n,) present temperatures [degC], NaN where they are not known; None if the model does not follow them."""
        return np.where(self._warmth.lacking, np.nan, self._warmth.values) if self.has_temperature else None

    @property
    def temperatures(self) -> TemperatureRange | None:
        """Temperatures of the frames that the estimate has learned from; None if the model does not follow them."""
        return self._warmth.range if self.has_temperature else None

    def mark_gap(self, lost: int = 0) -> None:
        """Restart the stream, with a new clock: filters start anew, parameters stay."""
        self._lost += lost
        self._seq = None
        self._origin_ns = None
        self._warmth.restart()
        restart_stream(self._memory.floats, self._memory.ints)
        self._memory["scalars"][m.LAST_MOTION] = -np.inf
        self._excited_at[:] = np.where(np.isfinite(self._excited_at), 0.0, -np.inf)

    def reset(self) -> None:
        """Forget everything that was learned."""
        counters = self._memory.ints[m.FRAMES : m.UPDATES].copy()
        self._initialise()
        self._memory.ints[m.FRAMES : m.UPDATES] = counters
        self._resets += 1
        self._origin_ns = None

    # -- results --------------------------------------------------------------------------------

    @property
    def theta(self) -> FloatArray:
        """(p,) the present estimate, a copy."""
        return self._memory["theta"].copy()

    @property
    def information_root(self) -> FloatArray:
        """(p, p) upper triangle `R` with `R'R` the information matrix, a copy."""
        return np.triu(root_of(self._memory, len(self.base)))

    def report(self, *, note: bool = True) -> EstimateReport:
        """Return the present estimate with uncertainties; without `note` nothing of what it finds is remembered."""
        memory = self._memory
        s = memory["scalars"]
        inverse = triangle_inverse(root_of(memory, len(self.base)))
        variance = (inverse**2).sum(axis=1)
        std = np.sqrt(variance)
        scale = np.sqrt(memory["power"] * row_inflation(memory))  # one row's weight in units of plain noise
        short_variance = triangle_inverse(memory["short"][0, :, : len(self.base)])
        short_std = np.sqrt((short_variance**2).sum(axis=1))
        with np.errstate(invalid="ignore"):
            effect = np.where(scale > 0.0, std * scale, np.inf)
            excited = (short_std * scale <= EXCITED_LIMIT) & (scale > 0.0)
        theta = memory["theta"].copy()
        now = float(s[m.ORIGIN] + (memory.ints[m.GRID] - 1) * s[m.STEP]) if memory.ints[m.BUFFERED] == 4 else 0.0
        excited_at = np.where(excited, now, self._excited_at)
        status = judge(
            memory, self.base, self.model.friction, self._warmth, supported(theta, std, effect),
            stale=now - excited_at > self.settings.stale_s,
            frozen=bool(now - s[m.LAST_MOTION] > FROZEN_S + self.delay_s),
        )  # fmt: skip
        validated = np.where(status < BELIEVED, theta, self._validated)
        if note:
            self._excited_at, self._validated = excited_at, validated
        origin = 0 if self._origin_ns is None else self._origin_ns
        return EstimateReport(
            t_ns=origin + round(float(s[m.TIME]) * 1e9),
            theta=theta,
            validated=validated.copy(),
            std=std,
            status=tuple(STATUS[k] for k in status.tolist()),
            excited=np.asarray(excited),
            scale=scale,
            lam=memory["forgetting"].copy(),
            innovation=memory["innovation"].copy(),
            sigma=np.sqrt(memory["sigma2"]),
            delay_s=self.delay_s,
            frames=int(memory.ints[m.FRAMES] + memory.ints[m.MASKED]),
            used=int(memory.ints[m.ROWS]),
            masked=int(memory.ints[m.MASKED]),
            repeated=int(memory.ints[m.REPEATED]),
            lost=self._lost,
            resets=self._resets,
            updates=int(memory.ints[m.UPDATES]),
        )

    @property
    def covariance(self) -> FloatArray:
        """(p, p) covariance of the present estimate."""
        inverse = triangle_inverse(root_of(self._memory, len(self.base)))
        return np.asarray(inverse @ inverse.T)

    def set_active(self, theta: FloatArray | None, constants: FloatArray | None = None) -> None:
        """Let `torque` predict with base parameters `theta` (p,); None for the online estimate.

        A batch model brings `constants` (p,) along: the velocity constant of each column, zero where it has none.
        Other constants than before make another model, so the estimate starts anew, from `theta`.  Load-dependent
        friction takes its load from `theta`: another load changes what its rows mean, and starts it anew as well.
        Otherwise the estimate goes on; a later `reset` starts from `theta`.
        """
        if self._predict_by(theta, constants):
            self.reset()

    def adopt(
        self,
        theta: FloatArray,
        covariance: FloatArray,
        constants: FloatArray | None = None,
        temperatures: TemperatureRange | None = None,
    ) -> None:
        """Let the batch model predict, and go on estimating from what it knows.

        The estimate becomes `theta` (p,) and its covariance that of the model, `covariance` (p, p), in place of what
        was learned and not in addition: both come from the same data.  Of a parameter with a variance of zero or one
        that is not finite nothing is known, as at the start.  Counters go on, and so do noise levels and filters unless
        the model changes what rows mean (see `set_active`).  `temperatures` are those that the model was identified at.

        Raises
        ------
        ValueError
            If a shape or value does not fit, or `covariance` is none; then nothing has changed.
        """
        covariance = np.asarray(covariance, dtype=np.float64)
        root = root_of_covariance(covariance, self._start)
        if self._predict_by(theta, constants):  # rows and columns of another meaning, and noise of another model
            counters = self._memory.ints[m.FRAMES : m.UPDATES + 1].copy()
            time = self._memory["scalars"][m.TIME]
            self._initialise()
            self._memory.ints[m.FRAMES : m.UPDATES + 1] = counters
            self._memory["scalars"][m.TIME] = time
            root = root_of_covariance(covariance, self._start)
        memory, p = self._memory, len(self.base)
        self._generation += 1
        self._warmth.learned_at(temperatures)
        memory["theta"][:] = self.prior
        memory["R"][:, :p] = root
        memory["scalars"][m.ROOT_SCALE] = 1.0
        # what was in excess were innovations of the estimate that is gone
        memory["innovation2"][:] = np.minimum(memory["innovation2"], memory["sigma2"])
        memory["excess"][:] = 0.0
        memory["forgetting"][:] = memory["scalars"][m.LAMBDA]
        memory["leak"][:] = 0.0
        hold_on(memory, self._start)

    def _predict_by(self, theta: FloatArray | None, constants: FloatArray | None) -> bool:
        """Take the active model; True if with it rows mean something else than before."""
        p = len(self.base)
        for name, given in (("theta", theta), ("constants", constants)):
            if given is not None and (np.shape(given) != (p,) or not np.isfinite(given).all()):
                raise ValueError(f"{name} of the active model must be {p} finite values, one per base parameter")
        shape = self.base.layout.shape[:, 0]
        if constants is not None:
            constants = np.where(np.isin(self.base.layout.law, self.model.friction.shaped), constants, shape)
            if (constants < 0.0).any():
                raise ValueError("constants of the active model must not be negative: they are velocities")
        self._active = None if theta is None else np.asarray(theta, dtype=np.float64).copy()
        self._watch_active()
        anew = False
        if theta is not None:
            self.prior = np.asarray(theta, dtype=np.float64).copy()
            load = self._memory["load_theta"]
            rounding = _ROUNDING * float(np.abs(self.prior).max())
            anew = self.base.layout.has_load and bool((np.abs(self.prior - load) > rounding).any())
            load[:] = self.prior
        if constants is not None and not np.array_equal(constants, shape):
            self._take_constants(np.column_stack((constants, self.base.layout.shape[:, 1:])))
            anew = True
        return anew

    def _watch_active(self) -> None:
        """Let updates add up squared residuals and evidence of the active model, if there is one."""
        self._memory["active"][:] = np.nan if self._active is None else self._active
        self.take_evidence()

    @property
    def residual_power(self) -> tuple[FloatArray, FloatArray]:
        """(n,) squared residuals of the active model [(N*m)^2] and the rows they are from, both summed since the start.

        Of rows that are clean of reversals.  Zero without an active model; differences of two moments tell its level.
        """
        return self._memory["misfit"].copy(), self._memory["misfit_count"].copy()

    def take_evidence(self) -> Evidence:
        """Return what the residual of the active model has shown since this was called last; see `Evidence`.

        Features are those of `friction_places(base.layout, n)`; without an active model there are no rows.
        """
        gram, rows = self._memory["evidence"], self._memory["evidence_rows"]
        lower = np.tril(gram)
        found = Evidence(lower + np.swapaxes(np.tril(gram, -1), 1, 2), rows.copy())
        gram[:] = rows[:] = 0.0
        return found

    def _take_constants(self, columns: FloatArray) -> None:
        """Let names, predictions and the description follow the shapes `columns` (p, 3) of the base regressor."""
        shape = self.base.standard.shape.copy()
        shape[self.base.independent] = columns
        self.base = replace(self.base, standard=replace(self.base.standard, shape=shape))
        self._describe()

    def torque(self) -> tuple[int, FloatArray, FloatArray, FloatArray] | None:
        """Measured, predicted and residual torque (n,) [N*m] of the newest filtered sample, and its time [ns].

        The residual is the torque that the active model does not account for: an estimate of
        external torque.  None until the filters are full, and while a temperature that it takes is not known.
        """
        newest = self._newest()
        if newest is None:
            return None
        theta = self._memory["theta"] if self._active is None else self._active
        predicted = newest.rows(self.model, self.base) @ theta
        s = self._memory["scalars"]
        t = s[m.ORIGIN] + (self._memory.ints[m.GRID] - 1 - self.bank.delay) * s[m.STEP]
        return (self._origin_ns or 0) + round(float(t) * 1e9), newest.tau, predicted, newest.tau - predicted

    def _newest(self) -> NewestSample | None:
        """Return the newest filtered sample; None until the filters are full, and where a temperature lacks."""
        if self.lacks_temperature.any():
            return None
        return newest_sample(self._memory, self.model, self.base, self.bank.smooth, warm=self.has_temperature)

    @property
    def filtered_torque(self) -> FloatArray | None:
        """Torque (n,) [N*m] of the newest filtered sample; None until the filters are full."""
        return filtered_torque(self._memory, self.model.n, self.bank.smooth)

    def standing(self, rests: BoolArray) -> Standing | None:
        """Judge by the estimate the torques of joints, (n,) of which `rests` seem to stand; None where `torque` is."""
        newest = self._newest()
        if newest is None:
            return None
        memory = self._memory
        return standing(
            self.model, self.base, memory["theta"], root_of(memory, len(self.base)), newest, rests,
            np.sqrt(memory["sigma2"]), np.sqrt(memory["torque2"]),
            memory["moved"] >= memory["scalars"][m.SETTLE_ROWS],
        )  # fmt: skip

    # -- state ----------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """How often the estimate has begun from something else; a checkpoint is of use in its own generation."""
        return self._generation

    def checkpoint(self) -> Checkpoint:
        """Return what the estimate is now, to go back to."""
        return Checkpoint.of(
            self._memory, self._validated, self._excited_at, self._warmth.seen, self._generation
        )  # fmt: skip

    def rollback(self, checkpoint: Checkpoint) -> bool:
        """Be again what the estimate was; filters start anew, clock and counters of frames go on.

        Returns False, and only starts the filters anew, where the estimate has begun from something else meanwhile.
        """
        memory = self._memory
        same = checkpoint.generation == self._generation
        if same:
            checkpoint.put_into(memory)
            self._validated, self._excited_at = checkpoint.validated.copy(), checkpoint.excited_at.copy()
            self._warmth.seen[:] = checkpoint.seen
            self._moved = memory["moved"].copy()
        self._watch_active()
        restart_stream(memory.floats, memory.ints)
        memory["scalars"][m.LAST_MOTION] = -np.inf
        return same

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later: plain numbers, strings and arrays."""
        return {
            "format": STATE_FORMAT,
            "hash": self.state_hash,
            "floats": self._memory.floats.copy(),
            "ints": self._memory.ints.copy(),
            "validated": self._validated.copy(),
            "excited_at": self._excited_at.copy(),
            "lost": self._lost,
            "resets": self._resets,
            **({"temperatures": self._warmth.seen.copy()} if self.has_temperature else {}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; the filters start anew.

        Raises
        ------
        ValueError
            If the state is of another format, model or settings, or damaged.
        """
        saved = take_saved(state, self.state_hash, self._memory, len(self.base))
        self._generation += 1
        self._watch_active()
        if not np.array_equal(self._memory["shape"], self.base.layout.shape):
            self._take_constants(self._memory["shape"])
            self._start = self._fresh()[1]
        self._validated, self._excited_at = saved.validated, saved.excited_at
        self._lost, self._resets = saved.lost, saved.resets
        self._warmth.seen[:] = saved.temperatures
        self._moved = self._memory["moved"].copy()
        self.mark_gap(0)
