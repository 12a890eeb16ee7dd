"""Online estimator of one arm: frames in, base parameters with uncertainties out."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rt_core.model.base import link_torque
from rt_core.model.friction import REFERENCE_TEMPERATURE
from rt_core.model.regressor import regressor
from rt_core.model.temperature import TemperatureRange
from rt_core.online import _state as m
from rt_core.online._pipeline import clear_filters
from rt_core.online._recursion import Recursion
from rt_core.online._saved_state import STATE_FORMAT, take_saved
from rt_core.online.monitors.examination import Examination
from rt_core.online.monitors.stuck_encoder import StationaryTorque
from rt_core.online.report import EstimateReport
from rt_core.online.rls.information_floor import root_of, row_inflation
from rt_core.online.rls.information_matrix import root_of_covariance, triangle_inverse
from rt_core.online.status import EXCITED_LIMIT, FROZEN_S, STATUS, STATUSES_WITH_VALUE, Support, judge, supported
from rt_core.types import BoolArray, FloatArray

_LARGEST = float(np.finfo(np.float64).max) ** 0.25  # of a parameter: squares of squares are formed of it
_ROUNDING = 1e-9  # of the largest parameter: models that differ by less are the same
# what a joint that stands may need beyond its model, in `stationary_torque`
_STICTION = 3.0  # largest ratio of static friction to sliding friction at `_SLOW`
_SLOW = 0.1  # [rad/s or m/s]
_SURE = 4.0  # standard deviations of the estimate
_NOISE = 8.0  # standard deviations of a row
_STRUCTURE = 0.15  # share of a joint's usual torque that a model does not explain


class _Sample(NamedTuple):
    """Filtered signals (n,), the load (1, n) of load-dependent friction, and temperatures (1, n) if it follows them."""

    q: FloatArray
    dq: FloatArray
    ddq: FloatArray
    tau: FloatArray
    load: FloatArray | None
    temperature: FloatArray | None


class OnlineEstimator(Recursion):
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

    # -- results --------------------------------------------------------------------------------

    def report(self, *, note: bool = True) -> EstimateReport:
        """Return the present estimate with uncertainties; without `note` the estimator does not change."""
        state = self._state
        s = state["scalars"]
        inverse = triangle_inverse(root_of(state, len(self.base)))
        variance = (inverse**2).sum(axis=1)
        std = self.trust.examined.widened(np.sqrt(variance))
        scale = np.sqrt(state["power"] * row_inflation(state))  # weight of one row in units of plain noise
        short_variance = triangle_inverse(state["short"][0, :, : len(self.base)])
        short_std = np.sqrt((short_variance**2).sum(axis=1))
        with np.errstate(invalid="ignore"):
            effect = np.where(scale > 0.0, std * scale, np.inf)
            excited = (short_std * scale <= EXCITED_LIMIT) & (scale > 0.0)
        theta = state["theta"].copy()
        now = float(s[m.ORIGIN] + (state.ints[m.GRID] - 1) * s[m.STEP]) if state.ints[m.BUFFERED] == 4 else 0.0
        excited_at = np.where(excited, now, self._excited_at)
        support = Support(
            supported(theta, std, effect), stale=now - excited_at > self.settings.stale_s,
            frozen=bool(now - s[m.LAST_MOTION] > FROZEN_S + self.delay_s), doubted=bool(self.trust.reasons),
            shaped=self.trust.shaped, starved=bool(self.supply.cause),
        )  # fmt: skip
        status = judge(state, self.base, self.model.friction, self._warmth, support)
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

    def take_examination(self, found: Examination) -> None:
        """Take an examination of this estimate's own frames; it holds until the next, or the estimate begins anew."""
        self.trust.examined = found

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
        if not (np.abs(root) < _LARGEST**2).all():
            raise ValueError("covariance of the model has a variance that is too small: its inverse is not finite")
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

    def _predict_by(self, theta: FloatArray | None, constants: FloatArray | None) -> bool:
        """Set the active model; return True if rows change their meaning."""
        p = len(self.base)
        for name, given in (("theta", theta), ("constants", constants)):
            if given is not None and (np.shape(given) != (p,) or not (np.abs(given) < _LARGEST).all()):
                raise ValueError(f"{name} of the active model must be {p} finite values below {_LARGEST:.0e}")
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

    @property
    def residual_power(self) -> tuple[FloatArray, FloatArray]:
        """(n,) squared residuals of the active model [(N*m)^2] and number of rows, both summed since the start.

        Rows near reversals are left out.  Zero without an active model; take differences for the present level.
        """
        return self._state["misfit"].copy(), self._state["misfit_count"].copy()

    def _take_constants(self, columns: FloatArray) -> None:
        """Set the shapes `columns` (p, 3) of the base regressor and update the metadata."""
        self.base = self.base.with_shape(columns)
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
        predicted = self._rows(newest, newest.dq, newest.ddq) @ theta
        s = self._state["scalars"]
        t = s[m.ORIGIN] + (self._state.ints[m.GRID] - 1 - self.bank.delay) * s[m.STEP]
        return (self._origin_ns or 0) + round(float(t) * 1e9), newest.tau, predicted, newest.tau - predicted

    def _newest(self) -> _Sample | None:
        """Return the latest filtered sample; None until the filters are full, and while a temperature is missing."""
        tau, state = self.filtered_torque, self._state
        if tau is None or self.lacks_temperature.any():
            return None
        lane = int(state.ints[m.LAST_LANE])
        q, dq, ddq = (state["state"][k, :, lane].copy() for k in range(3))
        load = temperature = None
        if self.base.layout.has_load:
            load = link_torque(self.model, self.base, state["load_theta"], q[None], dq[None], ddq[None])
        if self.has_temperature:
            temperature = state["state"][4:, :, lane] + REFERENCE_TEMPERATURE
        return _Sample(q, dq, ddq, tau, load, temperature)

    def _rows(self, sample: _Sample, dq: FloatArray, ddq: FloatArray) -> FloatArray:
        """Return the base regressor (n, p) of a sample, with the motion `dq` and `ddq` (n,)."""
        q, load, temperature = sample.q[None], sample.load, sample.temperature
        rows = regressor(self.model, self.base.layout, q, dq[None], ddq[None], load=load, temperature=temperature)
        return np.asarray(rows[0])

    @property
    def filtered_torque(self) -> FloatArray | None:
        """Torque (n,) [N*m] of the latest filtered sample; None until the filters are full."""
        state, n, smooth = self._state, self.model.n, self.bank.smooth
        if state.ints[m.SAMPLES] == 0:
            return None
        at = int(state.ints[m.RING_AT])
        return np.asarray(state["ring"][n : 2 * n, at : at + smooth.size] @ smooth)

    def stationary_torque(self, rests: BoolArray) -> StationaryTorque | None:
        """Return the torque residuals with the joints `rests` (n,) taken as standing; None where `torque` is.

        Joints whose noise is not known yet have an infinite limit.
        """
        newest = self._newest()
        if newest is None:
            return None
        state, theta, model = self._state, self._state["theta"], self.model
        sigma, usual = np.sqrt(state["sigma2"]), np.sqrt(state["torque2"])
        # velocity and acceleration are set to zero: they may come from another sensor than the position
        Y = self._rows(newest, np.where(rests, 0.0, newest.dq), np.where(rests, 0.0, newest.ddq))
        still, slow = np.zeros(model.n), np.full(model.n, _SLOW)
        # terms in the square of the speed cancel
        forth, back = (self._rows(newest, speed, still) @ theta for speed in (slow, -slow))
        std = np.linalg.norm(Y @ triangle_inverse(root_of(state, len(self.base))), axis=1)
        limit = _STICTION * (0.5 * np.abs(forth - back)) + _SURE * std + _NOISE * sigma + _STRUCTURE * usual
        limit[state["moved"] < state["scalars"][m.SETTLE_ROWS]] = np.inf
        return StationaryTorque(newest.tau - Y @ theta, limit, _NOISE * sigma + 0.1 * _STRUCTURE * usual)

    # -- state ----------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Number of times the estimate was replaced; a snapshot is valid only within its generation."""
        return self._generation

    def snapshot(self) -> dict[str, Any]:
        """Return the state for `rollback`, valid only for this estimator."""
        return {**self.state(), "generation": self._generation}

    def rollback(self, snapshot: Mapping[str, Any]) -> bool:
        """Restore a snapshot; clear the filters, keep the clock and the counters of frames.

        Returns False, and only clears the filters, if the estimate was replaced meanwhile.
        """
        state = self._state
        same = bool(snapshot["generation"] == self._generation)
        if same:
            counters, time = state.ints[m.FRAMES : m.UPDATES].copy(), state["scalars"][m.TIME]
            state.floats[:], state.ints[:] = snapshot["floats"], snapshot["ints"]
            state.ints[m.FRAMES : m.UPDATES], state["scalars"][m.TIME] = counters, time
            self._validated, self._excited_at = snapshot["validated"].copy(), snapshot["excited_at"].copy()
            if self.has_temperature:
                self._warmth.seen[:] = snapshot["temperatures"]
            self._moved = state["moved"].copy()
            self._take_trust(snapshot)
        self._watch_active()
        clear_filters(state.floats, state.ints)
        state["scalars"][m.LAST_MOTION] = -np.inf
        return same

    def state(self) -> dict[str, Any]:
        """Return the state to save: plain numbers, strings and arrays."""
        return {
            "format": STATE_FORMAT, "hash": self.state_hash, "floats": self._state.floats.copy(),
            "ints": self._state.ints.copy(), "validated": self._validated.copy(),
            "excited_at": self._excited_at.copy(), "lost": self._lost, "resets": self._resets, **self.trust.state(),
            **({"temperatures": self._warmth.seen.copy()} if self.has_temperature else {}),
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
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
