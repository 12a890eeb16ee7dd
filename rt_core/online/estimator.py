"""Online estimator of one arm: frames in, base parameters with uncertainties out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rt_core.model.base import BaseParameters, base_parameters
from rt_core.model.friction import TEMPERATURE
from rt_core.model.robot import RobotModel
from rt_core.model.temperature import TemperatureRange
from rt_core.online import _state as m
from rt_core.online._initial_state import initial_state
from rt_core.online._latest_sample import LatestSample, filtered_torque, latest_sample, stationary_torque
from rt_core.online._metadata import describe
from rt_core.online._pipeline import clear_filters, take_frame
from rt_core.online._saved_state import STATE_FORMAT, take_saved
from rt_core.online._settings import OnlineSettings
from rt_core.online.checkpoint import Checkpoint
from rt_core.online.filters import filter_bank, low_pass
from rt_core.online.monitors.residual_evidence import Evidence
from rt_core.online.monitors.stuck_encoder import StationaryTorque
from rt_core.online.monitors.supply import WINDOW_DELAYS, WINDOW_S, FrameSupply
from rt_core.online.monitors.temperatures import JointTemperatures
from rt_core.online.monitors.trust import LOOK_S, TrustMonitor
from rt_core.online.report import EstimateReport
from rt_core.online.rls.information_floor import renew_information_floor, root_of, row_inflation
from rt_core.online.rls.information_matrix import root_of_covariance, triangle_inverse
from rt_core.online.status import EXCITED_LIMIT, FROZEN_S, STATUS, STATUSES_WITH_VALUE, judge, supported
from rt_core.types import BoolArray, FloatArray

_ROUNDING = 1e-9  # of the largest parameter: models that differ by less are the same


class OnlineEstimator:
    """Square-root recursive least squares with variable forgetting over the base parameters of an arm.

    Parameters
    ----------
    model : RobotModel
    settings : OnlineSettings
    rate_hz : float
        Nominal rate of the frames; they are interpolated to a uniform grid.
    has_dq : bool
        Frames carry a measured joint velocity.
    prior : (p,) float64 or None
        Base parameters to start from; zero if None.
    base : BaseParameters or None
        Base parameters of `model`; computed if None.

    Raises
    ------
    ValueError
        If the settings do not fit the rate or the number of joints.
    """

    def __init__(
        self, model: RobotModel, settings: OnlineSettings, rate_hz: float, *, has_dq: bool = False,
        prior: FloatArray | None = None, base: BaseParameters | None = None,
    ) -> None:  # fmt: skip
        if not rate_hz > 0.0:
            raise ValueError(f"the frame rate must be positive, not {rate_hz}")
        self.model = model
        self.settings = settings
        self.rate_hz = float(rate_hz)
        self.base = base_parameters(model) if base is None else base
        self.has_dq = has_dq
        #: Friction depends on temperature: frames need the temperatures of the joints.
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
        self._generation = 0
        #: Whether the estimate can be believed.
        self.trust = TrustMonitor(model, self.base)
        self._look_updates = max(1, round(LOOK_S / self.update_s))
        #: Whether frames can be learned from.
        self.supply = FrameSupply()
        self._next_supply_ns = -(1 << 62)
        self._invalid = self._withheld = 0
        self._initialise()

    # -- construction ---------------------------------------------------------------------------

    def _describe(self) -> None:
        """Update `meta`, the metadata for subscribers, and `state_hash`, which a saved state must match."""
        self.state_hash, self.meta = describe(
            self.model, self.base, self.settings, self.rate_hz, self.factor, self.has_dq, self.delay_s
        )

    @property
    def delay_s(self) -> float:
        """Group delay of an estimate [s]: both filters, and one frame of interpolation."""
        return (self.bank.delay + self.parallel.size // 2 + 1) / self.rate_hz

    def _fresh(self) -> tuple[m.EstimatorState, FloatArray]:
        return initial_state(
            self.model, self.base, self.settings, self.rate_hz, self.has_dq, self.bank, self.parallel, self.factor,
            self.prior,
        )  # fmt: skip

    def _initialise(self) -> None:
        self._generation += 1
        self._state, self._start = self._fresh()
        p = len(self.base)
        self._validated = np.full(p, np.nan)
        self._excited_at = np.full(p, -np.inf)
        self._moved = self._state["moved"].copy()
        self._warmth.learned_at(None)
        self.trust.begin()
        self._next_look = self._look_updates
        self._watch_active()

    def warm_up(self) -> None:
        """Compile all kernels without changing the estimate."""
        copy = OnlineEstimator(
            self.model, self.settings, self.rate_hz, has_dq=self.has_dq, prior=self.prior, base=self.base
        )
        rng = np.random.default_rng(0)
        for k in range(self.bank.smooth.size + self.parallel.size + 3 * self.factor + 8):
            q, dq, tau = rng.standard_normal((3, self.model.n))
            copy.step(int(k * 1e9 / self.rate_hz), k, q, tau, None, dq if self.has_dq else None, np.full(q.size, 25.0))
        copy.report()
        copy.torque()
        copy.restart_stream(1)

    # -- frames ---------------------------------------------------------------------------------

    def step(
        self, t_ns: int, seq: int, q: FloatArray, tau: FloatArray, valid: BoolArray | None = None,
        dq: FloatArray | None = None, temperature: FloatArray | None = None, masked: bool = False,
    ) -> bool:  # fmt: skip
        """Process one frame; return True if the parameters were updated.

        A frame with an invalid joint or a value that is not finite is masked, as is one flagged `masked`: it is
        counted, left out, and bridged like a missing frame.  `dq` (n,) is required if `has_dq`.

        `temperature` (n,) [degC] is used if `has_temperature`.  Drives report it rarely: a value that is None, NaN,
        impossible (`rt_core.model.temperature.possible`) or of an invalid joint is replaced by the last valid one for
        10 s.  After that frames are masked, and friction is invalid, until a value arrives.
        """
        if self._seq is not None and seq > self._seq + 1:
            self._lost += seq - self._seq - 1
            self._state.ints[m.LOSS] = 1
        self._seq, self._begun = seq, True
        if self._origin_ns is None:
            self._origin_ns = t_ns
        if t_ns >= self._next_supply_ns:
            self._check_supply(t_ns)
        n = self.model.n
        frame = self._frame
        frame[:n] = q
        frame[n : 2 * n] = tau
        if self.has_dq:
            if dq is None:
                raise ValueError("this estimator was made for frames with a measured velocity, and the frame has none")
            frame[2 * n : 3 * n] = dq
        state = self._state
        known = True
        if self.has_temperature:
            if temperature is not None and valid is not None:
                temperature = np.where(valid, temperature, np.nan)
            known = self._warmth.take(t_ns, temperature)
            frame[-n:] = self._warmth.values
        if masked or not known or (valid is not None and not valid.all()):
            state.ints[m.MASKED] += 1
            state.ints[m.LOSS] = 1
            if masked or not known:
                self._withheld += 1
            else:
                self._invalid += 1
            return False
        if not (np.isfinite(q).all() and np.isfinite(tau).all()):
            self._invalid += 1  # masked by the kernel
        t = (t_ns - self._origin_ns) * 1e-9
        renewed = bool(take_frame(state.floats, state.ints, t, frame))
        if renewed and self.has_temperature:
            self._learn_temperatures()
        if renewed and state.ints[m.UPDATES] - state.ints[m.FLOOR_SET] >= state.ints[m.FLOOR_EVERY]:
            renew_information_floor(state, self._start)
        if renewed and state.ints[m.UPDATES] >= self._next_look:
            self._look()
        return renewed

    def _check_supply(self, t_ns: int) -> None:
        ints = self._state.ints
        masked = int(ints[m.MASKED])
        counts = {
            "frames": int(ints[m.FRAMES]) + masked, "samples": int(ints[m.SAMPLES]), "unused": int(ints[m.BRIDGED]),
            "withheld": self._withheld, "invalid": self._invalid, "lost": self._lost,
            "impossible": masked - self._invalid - self._withheld, "held": int(ints[m.REPEATED]),
            "gaps": int(ints[m.GAPS]),
        }  # fmt: skip
        window_s = max(WINDOW_S, WINDOW_DELAYS * self.delay_s)
        self.supply.look(counts, window_s * self.rate_hz)
        self._next_supply_ns = t_ns + round(1e9 * window_s)

    def _look(self) -> None:
        """Judge whether the estimate can be believed; start it anew where its data are of another arm."""
        state = self._state
        self._next_look = int(state.ints[m.UPDATES]) + self._look_updates
        theta, covariance, known = state["theta"], None, None
        if self.trust.needs_covariance():
            covariance = self.covariance
            std = np.sqrt(np.diag(covariance))
            known = supported(theta, std, std * np.sqrt(state["power"] * row_inflation(state)))
            known &= state["power"] > 0.0
        if self.trust.look(state, theta, covariance, known):
            # slopes over temperature stay: no sudden change is one of them, and it takes hours to learn them
            kept = np.isin(self.base.layout.law, TEMPERATURE)
            left = np.where(np.outer(kept, kept), self.covariance, 0.0)
            self._go_on_from(root_of_covariance(left, self._start))

    def _learn_temperatures(self) -> None:
        """Record the temperatures of the motors that a row of this update depends on."""
        moved = self._state["moved"]
        rows = moved != self._moved
        self._moved = moved.copy()
        self._warmth.learned((self._turned_by & rows).any(axis=1))

    @property
    def learns_change(self) -> BoolArray:
        """(n,) joints whose innovations were larger than usual when they last moved: the estimate has yet to adapt."""
        return np.asarray(self._state["excess"] > 0.0)

    @property
    def lacks_temperature(self) -> BoolArray:
        """(n,) joints whose temperature is needed but unknown."""
        return self._warmth.lacking if self.has_temperature else np.zeros(self.model.n, dtype=np.bool_)

    @property
    def has_frames(self) -> bool:
        """Whether a frame has been received since the start."""
        return self._begun

    @property
    def refused_temperatures(self) -> int:
        """Number of impossible temperatures, which were left out."""
        return self._warmth.refused

    @property
    def temperature(self) -> FloatArray | None:
        """(n,) present temperatures [degC], NaN if unknown; None if the model does not depend on them."""
        return np.where(self._warmth.lacking, np.nan, self._warmth.values) if self.has_temperature else None

    @property
    def temperatures(self) -> TemperatureRange | None:
        """Temperatures of the data in the estimate; None if the model does not depend on them."""
        return self._warmth.range if self.has_temperature else None

    def restart_stream(self, lost: int = 0) -> None:
        """Restart the stream with a new clock: clear the filters, keep the parameters."""
        self._lost += lost
        self._seq = None
        self._origin_ns = None
        self._restart_supply()
        self._warmth.restart()
        clear_filters(self._state.floats, self._state.ints)
        self._state["scalars"][m.LAST_MOTION] = -np.inf
        self._excited_at[:] = np.where(np.isfinite(self._excited_at), 0.0, -np.inf)

    def _restart_supply(self) -> None:
        self.supply.restart()
        self._next_supply_ns = -(1 << 62)

    def reset(self) -> None:
        """Reset the estimate to its prior; counters of frames go on."""
        counters = self._state.ints[m.FRAMES : m.UPDATES].copy()
        self._initialise()
        self._state.ints[m.FRAMES : m.UPDATES] = counters
        self._resets += 1
        self._origin_ns = None
        self._restart_supply()

    # -- results --------------------------------------------------------------------------------

    @property
    def theta(self) -> FloatArray:
        """(p,) the present estimate, a copy."""
        return self._state["theta"].copy()

    @property
    def information_root(self) -> FloatArray:
        """(p, p) upper triangle `R` with `R'R` the information matrix, a copy."""
        return np.triu(root_of(self._state, len(self.base)))

    def report(self, *, note: bool = True) -> EstimateReport:
        """Return the present estimate with uncertainties; without `note` the estimator does not change."""
        state = self._state
        s = state["scalars"]
        inverse = triangle_inverse(root_of(state, len(self.base)))
        variance = (inverse**2).sum(axis=1)
        std = np.sqrt(variance)
        scale = np.sqrt(state["power"] * row_inflation(state))  # weight of one row in units of plain noise
        short_variance = triangle_inverse(state["short"][0, :, : len(self.base)])
        short_std = np.sqrt((short_variance**2).sum(axis=1))
        with np.errstate(invalid="ignore"):
            effect = np.where(scale > 0.0, std * scale, np.inf)
            excited = (short_std * scale <= EXCITED_LIMIT) & (scale > 0.0)
        theta = state["theta"].copy()
        now = float(s[m.ORIGIN] + (state.ints[m.GRID] - 1) * s[m.STEP]) if state.ints[m.BUFFERED] == 4 else 0.0
        excited_at = np.where(excited, now, self._excited_at)
        status = judge(
            state, self.base, self.model.friction, self._warmth, supported(theta, std, effect),
            stale=now - excited_at > self.settings.stale_s,
            frozen=bool(now - s[m.LAST_MOTION] > FROZEN_S + self.delay_s), doubted=self.trust.doubted,
            starved=bool(self.supply.cause),
        )  # fmt: skip
        validated = np.where(status < STATUSES_WITH_VALUE, theta, self._validated)
        if note:
            self._excited_at, self._validated = excited_at, validated
        origin = 0 if self._origin_ns is None else self._origin_ns
        return EstimateReport(
            t_ns=origin + round(float(s[m.TIME]) * 1e9), theta=theta, validated=validated.copy(), std=std,
            status=tuple(STATUS[k] for k in status.tolist()), excited=np.asarray(excited), scale=scale,
            lam=state["forgetting"].copy(), innovation=state["innovation"].copy(), sigma=np.sqrt(state["sigma2"]),
            delay_s=self.delay_s, frames=int(state.ints[m.FRAMES] + state.ints[m.MASKED]),
            used=int(state.ints[m.ROWS]), masked=int(state.ints[m.MASKED]), repeated=int(state.ints[m.REPEATED]),
            lost=self._lost, resets=self._resets, updates=int(state.ints[m.UPDATES]),
        )  # fmt: skip

    @property
    def covariance(self) -> FloatArray:
        """(p, p) covariance of the present estimate."""
        inverse = triangle_inverse(root_of(self._state, len(self.base)))
        return np.asarray(inverse @ inverse.T)

    def set_active(self, theta: FloatArray | None, constants: FloatArray | None = None) -> None:
        """Let `torque` predict with base parameters `theta` (p,); None for the online estimate.

        `constants` (p,) are the velocity constants of a batch model by column, zero where there is none.  If they
        differ from the present ones, or if `theta` changes the load of load-dependent friction, rows change their
        meaning and the estimate is reset to `theta`.  Otherwise it goes on; a later `reset` starts from `theta`.
        """
        if self._predict_by(theta, constants):
            self.reset()

    def adopt(
        self, theta: FloatArray, covariance: FloatArray, constants: FloatArray | None = None,
        temperatures: TemperatureRange | None = None,
    ) -> None:  # fmt: skip
        """Make a batch model the active one, and continue the estimate from it.

        `theta` (p,) and `covariance` (p, p) of the model replace the estimate and its covariance; they are not
        combined, since both come from the same data.  A parameter whose variance is zero or not finite is unknown, as
        at the start.  Counters go on, and so do noise levels and filters unless rows change their meaning (see
        `set_active`).  `temperatures` are those at which the model was identified.

        Raises
        ------
        ValueError
            If a shape or value does not fit, or `covariance` is not one; the estimator is then unchanged.
        """
        covariance = np.asarray(covariance, dtype=np.float64)
        root = root_of_covariance(covariance, self._start)
        if self._predict_by(theta, constants):  # rows change their meaning, and noise levels are of another model
            counters = self._state.ints[m.FRAMES : m.UPDATES + 1].copy()
            time = self._state["scalars"][m.TIME]
            self._initialise()
            self._state.ints[m.FRAMES : m.UPDATES + 1] = counters
            self._state["scalars"][m.TIME] = time
            root = root_of_covariance(covariance, self._start)
        state = self._state
        self._generation += 1
        self._warmth.learned_at(temperatures)
        state["theta"][:] = self.prior
        self.trust.begin()
        self._go_on_from(root)

    def _go_on_from(self, root: FloatArray) -> None:
        """Replace the information by `root` (p, p)."""
        state = self._state
        state["R"][:, : len(self.base)] = root
        state["scalars"][m.ROOT_SCALE] = 1.0
        # the excess was that of the replaced estimate
        state["innovation2"][:] = np.minimum(state["innovation2"], state["sigma2"])
        state["excess"][:] = 0.0
        state["forgetting"][:] = state["scalars"][m.LAMBDA]
        state["leak"][:] = 0.0
        renew_information_floor(state, self._start)

    def _predict_by(self, theta: FloatArray | None, constants: FloatArray | None) -> bool:
        """Set the active model; return True if rows change their meaning."""
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
            load = self._state["load_theta"]
            rounding = _ROUNDING * float(np.abs(self.prior).max())
            anew = self.base.layout.has_load and bool((np.abs(self.prior - load) > rounding).any())
            load[:] = self.prior
        if constants is not None and not np.array_equal(constants, shape):
            self._take_constants(np.column_stack((constants, self.base.layout.shape[:, 1:])))
            anew = True
        return anew

    def _watch_active(self) -> None:
        """Sum squared residuals and evidence of the active model from now on."""
        self._state["active"][:] = np.nan if self._active is None else self._active
        self.take_evidence()

    @property
    def residual_power(self) -> tuple[FloatArray, FloatArray]:
        """(n,) squared residuals of the active model [(N*m)^2] and number of rows, both summed since the start.

        Rows near reversals are left out.  Zero without an active model; take differences for the present level.
        """
        return self._state["misfit"].copy(), self._state["misfit_count"].copy()

    def take_evidence(self) -> Evidence:
        """Return the `Evidence` about the residual of the active model since the last call; no rows without a model.

        Its friction features are those of `friction_columns(base.layout, n)`.
        """
        gram, rows = self._state["evidence"], self._state["evidence_rows"]
        lower = np.tril(gram)
        found = Evidence(lower + np.swapaxes(np.tril(gram, -1), 1, 2), rows.copy())
        gram[:] = rows[:] = 0.0
        return found

    def _take_constants(self, columns: FloatArray) -> None:
        """Set the shapes `columns` (p, 3) of the base regressor and update the metadata."""
        shape = self.base.standard.shape.copy()
        shape[self.base.independent] = columns
        self.base = replace(self.base, standard=replace(self.base.standard, shape=shape))
        self._describe()

    def torque(self) -> tuple[int, FloatArray, FloatArray, FloatArray] | None:
        """Return time [ns] and measured, predicted and residual torque (n,) [N*m] of the latest filtered sample.

        The residual is what the active model does not explain: an estimate of external torque.  None until the filters
        are full, and while a needed temperature is unknown.
        """
        newest = self._newest()
        if newest is None:
            return None
        theta = self._state["theta"] if self._active is None else self._active
        predicted = newest.rows(self.model, self.base) @ theta
        s = self._state["scalars"]
        t = s[m.ORIGIN] + (self._state.ints[m.GRID] - 1 - self.bank.delay) * s[m.STEP]
        return (self._origin_ns or 0) + round(float(t) * 1e9), newest.tau, predicted, newest.tau - predicted

    def _newest(self) -> LatestSample | None:
        """Return the latest filtered sample; None until the filters are full, and while a temperature is missing."""
        if self.lacks_temperature.any():
            return None
        return latest_sample(self._state, self.model, self.base, self.bank.smooth, warm=self.has_temperature)

    @property
    def filtered_torque(self) -> FloatArray | None:
        """Torque (n,) [N*m] of the latest filtered sample; None until the filters are full."""
        return filtered_torque(self._state, self.model.n, self.bank.smooth)

    def stationary_torque(self, rests: BoolArray) -> StationaryTorque | None:
        """Return the torque residuals with the joints `rests` (n,) taken as standing; None where `torque` is."""
        newest = self._newest()
        if newest is None:
            return None
        state = self._state
        return stationary_torque(
            self.model, self.base, state["theta"], root_of(state, len(self.base)), newest, rests,
            np.sqrt(state["sigma2"]), np.sqrt(state["torque2"]),
            state["moved"] >= state["scalars"][m.SETTLE_ROWS],
        )  # fmt: skip

    # -- state ----------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Number of times the estimate was replaced; a checkpoint is valid only within its generation."""
        return self._generation

    def checkpoint(self) -> Checkpoint:
        """Return a snapshot of the estimate, for `rollback`."""
        return Checkpoint.of(
            self._state, self._validated, self._excited_at, self._warmth.seen, self._generation, self.trust.state()
        )

    def rollback(self, checkpoint: Checkpoint) -> bool:
        """Restore a checkpoint; clear the filters, keep the clock and the counters of frames.

        Returns False, and only clears the filters, if the estimate was replaced meanwhile.
        """
        state = self._state
        same = checkpoint.generation == self._generation
        if same:
            checkpoint.put_into(state)
            self._validated, self._excited_at = checkpoint.validated.copy(), checkpoint.excited_at.copy()
            self._warmth.seen[:] = checkpoint.seen
            self._moved = state["moved"].copy()
            self._take_trust(checkpoint.trust)
        self._watch_active()
        clear_filters(state.floats, state.ints)
        state["scalars"][m.LAST_MOTION] = -np.inf
        return same

    def state(self) -> dict[str, Any]:
        """Return the state to save: plain numbers, strings and arrays."""
        return {
            "format": STATE_FORMAT,
            "hash": self.state_hash,
            "floats": self._state.floats.copy(),
            "ints": self._state.ints.copy(),
            "validated": self._validated.copy(),
            "excited_at": self._excited_at.copy(),
            "lost": self._lost,
            "resets": self._resets,
            **self.trust.state(),
            **({"temperatures": self._warmth.seen.copy()} if self.has_temperature else {}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a saved state; clear the filters.

        Raises
        ------
        ValueError
            If the state is of another format, model or settings, or damaged.
        """
        saved = take_saved(state, self.state_hash, self._state, len(self.base))
        self._generation += 1
        self._watch_active()
        if not np.array_equal(self._state["shape"], self.base.layout.shape):
            self._take_constants(self._state["shape"])
            self._start = self._fresh()[1]
        self._validated, self._excited_at = saved.validated, saved.excited_at
        self._lost, self._resets = saved.lost, saved.resets
        self._warmth.seen[:] = saved.temperatures
        self._moved = self._state["moved"].copy()
        self._take_trust(state)
        self.restart_stream(0)

    def _take_trust(self, saved: Mapping[str, Any]) -> None:
        self.trust.restore(saved)
        self._next_look = int(self._state.ints[m.UPDATES]) + self._look_updates
