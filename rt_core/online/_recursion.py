"""Frames in, estimate kept: the recursion of the online estimator, and its looks at itself."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from rt_core.model.base import BaseParameters, base_parameters
from rt_core.model.friction import TEMPERATURE
from rt_core.model.robot import RobotModel
from rt_core.model.temperature import TemperatureRange
from rt_core.online import _state as m
from rt_core.online._initial_state import initial_state
from rt_core.online._pipeline import clear_filters, take_frames
from rt_core.online._settings import OnlineSettings
from rt_core.online.filters import Sampling, filter_bank, low_pass
from rt_core.online.monitors.residual_evidence import Evidence
from rt_core.online.monitors.supply import WINDOW_DELAYS, WINDOW_S, FrameSupply
from rt_core.online.monitors.temperatures import JointTemperatures
from rt_core.online.monitors.trust import LOOK_S, TrustMonitor
from rt_core.online.rls.information_floor import renew_information_floor, root_of, row_inflation
from rt_core.online.rls.information_matrix import root_of_covariance, triangle_inverse
from rt_core.online.status import supported
from rt_core.types import BoolArray, FloatArray

_NO_VELOCITY = "this estimator was made for frames with a measured velocity, and the frame has none"


class Recursion:
    """Recursion over frames; see `OnlineEstimator` for the parameters."""

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
        self._frame = np.zeros((1, model.n * (2 + has_dq + self.has_temperature)))  # latest
        self._t, self._taken = np.zeros(1), np.zeros(1, dtype=np.bool_)
        self._warmth = JointTemperatures(model.n)
        self._turned_by = model.coupling != 0.0  # motors by joints
        self._generation = 0
        #: Whether the estimate can be believed.
        self.trust = TrustMonitor(model, self.base)
        self._look_updates = max(1, round(LOOK_S / self.update_s))
        #: Whether frames can be learned from.
        self.supply = FrameSupply()
        self._next_supply_ns = -(1 << 62)
        self._supply_q = np.full(model.n, np.nan)  # at the last look
        self._invalid = self._withheld = 0
        self._initialise()

    # -- construction ---------------------------------------------------------------------------

    def _describe(self) -> None:
        """Update `meta` for subscribers, and `state_hash`, without friction's constants, which a state must match."""
        model, base, rate_hz = self.model, self.base, self.rate_hz
        friction = asdict(model.friction)
        if friction["temperature"] == "none":  # it was added later: old states stay valid
            del friction["temperature"]
        self.meta: dict[str, Any] = {
            "robot": model.name, "joints": [j.name for j in model.joints], "torque_units": model.torque_units,
            "parameters": list(base.names), "units": list(base.layout.units), "expressions": list(base.expressions),
            "standard": list(base.standard.names), "base_map": base.mapping.tolist(), "friction": friction,
            "settings": asdict(self.settings), "rate_hz": rate_hz, "update_hz": rate_hz / self.factor,
            "has_dq": self.has_dq, "delay_s": self.delay_s,
        }  # fmt: skip
        content = json.dumps(self.meta, sort_keys=True) + model.geometry.tobytes().hex() + str(model.gravity)
        constants = base.layout.shape[:, 0].tolist()
        self.state_hash = hashlib.sha256(content.encode()).hexdigest()
        full = hashlib.sha256((content + json.dumps(constants)).encode()).hexdigest()
        self.meta |= {"constants": constants, "hash": full}

    @property
    def delay_s(self) -> float:
        """Group delay of an estimate [s]: both filters, and one frame of interpolation."""
        return (self.bank.delay + self.parallel.size // 2 + 1) / self.rate_hz

    def _fresh(self) -> tuple[m.EstimatorState, FloatArray]:
        sampling = Sampling(self.rate_hz, self.has_dq, self.bank, self.parallel, self.factor)
        return initial_state(self.model, self.base, self.settings, sampling, self.prior)

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
        self._arrive(t_ns, seq)
        self._seq = seq
        n, state, frame = self.model.n, self._state, self._frame[0]
        frame[:n] = q
        frame[n : 2 * n] = tau
        if self.has_dq:
            if dq is None:
                raise ValueError(_NO_VELOCITY)
            frame[2 * n : 3 * n] = dq
        known = not self.has_temperature or self._take_temperature(t_ns, temperature, valid, frame)
        invalid = valid is not None and not valid.all()
        if masked or invalid or not known:
            state.ints[m.MASKED] += 1
            state.ints[m.LOSS] = 1
            if invalid and not masked:  # whose temperatures are not known before long, either
                self._invalid += 1
            else:
                self._withheld += 1
            return False
        self._t[0] = (t_ns - (self._origin_ns or 0)) * 1e-9
        left_out = state.ints[m.MASKED]
        updated = take_frames(state.floats, state.ints, self._t, self._frame, self._taken, 0) == 0
        if state.ints[m.MASKED] != left_out and not np.isfinite(frame).all():
            self._invalid += 1
        if updated:
            self._on_update(frame)
        return updated

    def take(
        self, t_ns: Sequence[int], seq: Sequence[int], q: FloatArray, tau: FloatArray, valid: BoolArray | None = None,
        dq: FloatArray | None = None, temperature: FloatArray | None = None, masked: bool = False,
    ) -> list[int]:  # fmt: skip
        """Process N successive frames with values (N, n), to the bit as `step` does one after the other.

        Returns the indices of the frames that updated the parameters.
        """
        n, size = self.model.n, len(t_ns)
        frames, left_out = np.empty((size, self._frame.size)), np.zeros(size, dtype=np.bool_)
        frames[:, :n] = q
        frames[:, n : 2 * n] = tau
        if self.has_dq:
            if dq is None:
                raise ValueError(_NO_VELOCITY)
            frames[:, 2 * n : 3 * n] = dq
        if masked:
            left_out[:] = True
        elif valid is not None:
            np.logical_not(valid.all(axis=1), out=left_out)
        updated: list[int] = []
        begin = 0
        while begin < size:
            self._arrive(t_ns[begin], seq[begin])
            end = begin + 1  # up to where frames are missing, or the supply is checked
            while end < size and seq[end] <= seq[end - 1] + 1 and t_ns[end] < self._next_supply_ns:
                end += 1
            self._seq = seq[end - 1]
            invalid = 0 if masked or valid is None else int(np.count_nonzero(left_out[begin:end]))
            for k in range(begin, end if self.has_temperature else begin):
                left_out[k] |= not self._take_temperature(
                    t_ns[k], None if temperature is None else temperature[k], None if valid is None else valid[k],
                    frames[k],
                )  # fmt: skip
            updated += self._run(t_ns[:end], frames, left_out, begin, invalid)
            self._frame[0] = frames[end - 1]
            begin = end
        return updated

    def _take_temperature(
        self, t_ns: int, reported: FloatArray | None, valid: BoolArray | None, frame: FloatArray
    ) -> bool:  # fmt: skip
        """Complete a frame by temperatures (n,); return False where one is unknown."""
        if reported is not None and valid is not None:
            reported = np.where(valid, reported, np.nan)
        known = self._warmth.take(t_ns, reported)
        frame[-self.model.n :] = self._warmth.values
        return known

    def next_change_ns(self) -> int:
        """Return a time on the frames' clock [ns] before which no frame can change results of the estimate.

        That is: update parameters, change whether the supply of frames suffices, or which temperatures are lacking.
        """
        ints, s = self._state.ints, self._state["scalars"]
        if self._origin_ns is None or ints[m.BUFFERED] < 4:
            return self._next_supply_ns if self._origin_ns is None else self._origin_ns
        filling = max(0, int(ints[m.LENGTH] - 1 - ints[m.RING_COUNT]))
        behind = int(ints[m.SAMPLES] - ints[m.LENGTH2] + 1)
        filling += -behind if behind < 0 else -behind % self.factor
        # the frame before has to reach the sample: less half a step, beyond all rounding
        grid_s = float(s[m.ORIGIN] + (ints[m.GRID] + filling - 0.5) * s[m.STEP])
        due_ns = min(self._next_supply_ns, self._origin_ns + int(1e9 * grid_s))
        return min(due_ns, self._warmth.expiry_ns) if self.has_temperature else due_ns

    def _arrive(self, t_ns: int, seq: int) -> None:
        """Count what is missing before a frame, and check the supply when it is due."""
        if self._seq is not None and seq > self._seq + 1:
            self._lost += seq - self._seq - 1
            self._state.ints[m.LOSS] = 1
        self._begun = True
        if self._origin_ns is None:
            self._origin_ns = t_ns
        if t_ns >= self._next_supply_ns:
            self._check_supply(t_ns)

    def _run(
        self, t_ns: Sequence[int], frames: FloatArray, left_out: BoolArray, begin: int, invalid: int
    ) -> list[int]:  # fmt: skip
        """Pass the frames from `begin` on to the kernel; return the indices of those that updated the parameters.

        `invalid` is how many of those that are `left_out` (N,) have an invalid joint.
        """
        state = self._state
        origin_ns, masked = self._origin_ns or 0, int(state.ints[m.MASKED])
        t = np.array([(stamp - origin_ns) * 1e-9 for stamp in t_ns])  # of few frames faster than an array of them
        others = int(np.count_nonzero(left_out[begin : t.size]))
        self._invalid += invalid
        self._withheld += others - invalid
        updated, k = [], begin - 1
        while (k := take_frames(state.floats, state.ints, t, frames, left_out, k + 1)) < t.size:
            self._on_update(frames[k])
            updated.append(k)
        if state.ints[m.MASKED] - masked > others:  # impossible ones: those that are no numbers count as invalid
            finite = np.isfinite(frames[begin : t.size]).all(axis=1)
            self._invalid += int(np.count_nonzero(~finite & ~left_out[begin : t.size]))
        return updated

    def _on_update(self, frame: FloatArray) -> None:
        """Do what is due after an update of the parameters with `frame` (channels,)."""
        ints = self._state.ints
        if self.has_temperature:
            self._learn_temperatures(frame[-self.model.n :])
        if ints[m.UPDATES] - ints[m.FLOOR_SET] >= ints[m.FLOOR_EVERY]:
            renew_information_floor(self._state, self._start)
        if ints[m.UPDATES] >= self._next_look:
            self._look()

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
        q = self._frame[0, : self.model.n]
        with np.errstate(invalid="ignore"):  # the frame may hold no numbers
            moves = bool((np.abs(q - self._supply_q) > self.model.standstill_velocity * window_s).any())
        self._supply_q = q.copy()
        self.supply.look(counts, window_s * self.rate_hz, moves)
        self._next_supply_ns = t_ns + round(1e9 * window_s)

    def _look(self) -> None:
        """Judge whether the estimate can be believed; start it anew where its data are of another arm."""
        state = self._state
        self._next_look = int(state.ints[m.UPDATES]) + self._look_updates
        length = int(state.ints[m.LENGTH])
        if state.ints[m.RING_COUNT] >= length and not state["bridged"].any():
            n, at = self.model.n, int(state.ints[m.RING_AT])
            window = state["ring"][:, at : at + length]
            self.trust.take_torque(window[n : 2 * n])
            if self.has_dq:
                self.trust.velocity.take(window[:n], window[2 * n : 3 * n], 1.0 / self.rate_hz)
        values = None
        if self.trust.needs_covariance():
            covariance = self.covariance
            std, scale = np.sqrt(np.diag(covariance)), np.sqrt(state["power"] * row_inflation(state))
            values = covariance, supported(state["theta"], std, std * scale) & (scale > 0.0), scale
        if self.trust.look(state, values):
            # slopes over temperature stay: no sudden change is one of them, and it takes hours to learn them
            kept = np.isin(self.base.layout.law, TEMPERATURE)
            left = np.where(np.outer(kept, kept), self.covariance, 0.0)
            self._go_on_from(root_of_covariance(left, self._start))

    def _learn_temperatures(self, values: FloatArray) -> None:
        """Record the temperatures `values` (n,) of the motors that a row of this update depends on."""
        moved = self._state["moved"]
        rows = moved != self._moved
        self._moved = moved.copy()
        self._warmth.learned((self._turned_by & rows).any(axis=1), values)

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

    # -- the estimate ---------------------------------------------------------------------------

    @property
    def theta(self) -> FloatArray:
        """(p,) the present estimate, a copy."""
        return self._state["theta"].copy()

    @property
    def information_root(self) -> FloatArray:
        """(p, p) upper triangle `R` with `R'R` the information matrix, a copy."""
        return np.triu(root_of(self._state, len(self.base)))

    @property
    def covariance(self) -> FloatArray:
        """(p, p) covariance of the present estimate."""
        inverse = triangle_inverse(root_of(self._state, len(self.base)))
        return np.asarray(inverse @ inverse.T)

    @property
    def stated_covariance(self) -> FloatArray:
        """(p, p) `covariance` with the variances that are stated: wider by what the latest examination has found."""
        return self.trust.examined.widened_covariance(self.covariance)

    def _go_on_from(self, root: FloatArray) -> None:
        """Replace the information by `root` (p, p)."""
        state = self._state
        state["R"][:, : len(self.base)] = root
        state["scalars"][m.ROOT_SCALE] = 1.0
        # the excess was that of the replaced estimate
        state["innovation2"][:] = np.fmin(state["innovation2"], state["sigma2"])
        state["excess"][:] = 0.0
        state["forgetting"][:] = state["scalars"][m.LAMBDA]
        state["leak"][:] = 0.0
        renew_information_floor(state, self._start)

    # -- the residual of the active model -------------------------------------------------------

    def _watch_active(self) -> None:
        """Sum squared residuals and evidence of the active model from now on."""
        self._state["active"][:] = np.nan if self._active is None else self._active
        self.take_evidence()

    def take_evidence(self) -> Evidence:
        """Return the `Evidence` about the residual of the active model since the last call; no rows without a model.

        Its friction features are those of `friction_columns(base.layout, n)`.
        """
        gram, rows = self._state["evidence"], self._state["evidence_rows"]
        lower = np.tril(gram)
        found = Evidence(lower + np.swapaxes(np.tril(gram, -1), 1, 2), rows.copy())
        gram[:] = rows[:] = 0.0
        return found
