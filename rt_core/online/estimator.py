"""The online estimator of one arm: frames in, parameters with honest uncertainties out."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from scipy.linalg.lapack import dtrtri

from rt_core.model.base import BaseParameters, base_parameters, link_torque
from rt_core.model.friction import LAW_OFFSET, LAW_VISCOUS
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.online import memory as m
from rt_core.online.filters import filter_bank, low_pass
from rt_core.online.pipeline import restart_stream, take_frame
from rt_core.online.report import EstimateReport, EstimateStatus
from rt_core.online.settings import OnlineSettings
from rt_core.online.start import start_memory
from rt_core.types import BoolArray, FloatArray, IntArray

_STATUS: tuple[EstimateStatus, ...] = ("estimated", "stale", "frozen", "unestimated", "invalid")
_BELIEVED = 3  # the first three of them

#: Format of the saved state.
STATE_FORMAT = 4
#: As in the batch verdicts: a value is supported if its standard deviation is at most this share of it ...
RELATIVE_STD_LIMIT = 0.3
#: ... or moves the torque by less than this much of the noise.
TORQUE_EFFECT_LIMIT = 1.0
#: The same for what the last few seconds alone would determine.
EXCITED_LIMIT = 2.0
#: Frozen: no joint has moved for this long [s].
_FROZEN_S = 2.0
#: A joint whose mean squared innovation exceeds this share of its torque's is not explained by the model.
_UNEXPLAINED = 0.5
_LEAK_EFFECT = 0.3  # what is known to this much of the noise stays known
_ROUNDING = 1e-9  # of the largest parameter: as far apart, and two models are the same
# Fields of a saved state that are finite at any time; innovations of joints at rest are not.
_LEARNED = (
    "theta", "R", "short", "leak", "power", "power_count", "shape", "load_theta", "sigma_sum", "sigma_count", "sigma2",
    "inflation_sum", "inflation_count", "weight2", "innovation2", "torque2", "torque_mean2", "moved", "forgetting",
    "excess", "block_sum", "block_count",
)  # fmt: skip


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
        self._lost = 0
        self._resets = 0
        self._masked_row = 0
        self._active: FloatArray | None = None
        self._frame = np.zeros(model.n * (3 if has_dq else 2))
        self._initialise()

    # -- construction ---------------------------------------------------------------------------

    def _describe(self) -> None:
        """Renew `meta`, what a subscriber needs to know, and `state_hash`, what a saved state must agree with.

        The velocity constants of friction are part of the first only: a state brings its own.
        """
        names = {
            "robot": self.model.name,
            "joints": [j.name for j in self.model.joints],
            "torque_units": ["N*m" if j.kind == "revolute" else "N" for j in self.model.joints],
            "parameters": list(self.base.names),
            "units": list(self.base.layout.units),
            "expressions": list(self.base.expressions),
            "standard": list(self.base.standard.names),
            "base_map": self.base.mapping.tolist(),
            "friction": asdict(self.model.friction),
            "settings": asdict(self.settings),
            "rate_hz": self.rate_hz,
            "update_hz": self.rate_hz / self.factor,
            "has_dq": self.has_dq,
            "delay_s": self.delay_s,
        }
        content = json.dumps(names, sort_keys=True) + self.model.geometry.tobytes().hex() + str(self.model.gravity)
        constants = self.base.layout.shape[:, 0].tolist()
        self.state_hash = hashlib.sha256(content.encode()).hexdigest()
        full = hashlib.sha256((content + json.dumps(constants)).encode()).hexdigest()
        self.meta: dict[str, Any] = names | {"constants": constants, "hash": full}

    @property
    def delay_s(self) -> float:
        """Group delay of an estimate [s]: both filters and one frame of interpolation."""
        return (self.bank.delay + self.parallel.size // 2 + 1) / self.rate_hz

    def _initialise(self) -> None:
        self._memory, self._start = start_memory(
            self.model, self.base, self.settings, self.rate_hz, self.has_dq, self.bank, self.parallel, self.factor,
            self.prior,
        )  # fmt: skip
        p = len(self.base)
        self._validated = np.full(p, np.nan)
        self._excited_at = np.full(p, -np.inf)

    def warm_up(self) -> None:
        """Compile every kernel, without touching the estimate."""
        copy = OnlineEstimator(
            self.model, self.settings, self.rate_hz, has_dq=self.has_dq, prior=self.prior, base=self.base
        )
        rng = np.random.default_rng(0)
        for k in range(self.bank.smooth.size + self.parallel.size + 3 * self.factor + 8):
            q, dq, tau = rng.standard_normal((3, self.model.n))
            copy.step(int(k * 1e9 / self.rate_hz), k, q, tau, None, dq if self.has_dq else None)
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
    ) -> bool:
        """Take one frame; True if the parameters were renewed.

        A frame with an invalid joint or a value that is not finite is masked: it is counted and left
        out, and bridged like a missing one.  `dq` (n,) is required if `has_dq`.
        """
        if self._seq is not None and seq > self._seq + 1:
            self._lost += seq - self._seq - 1
            self._memory.ints[m.LOSS] = 1
        self._seq = seq
        if self._origin_ns is None:
            self._origin_ns = t_ns
        n = self.model.n
        frame = self._frame
        frame[:n] = q
        frame[n : 2 * n] = tau
        if self.has_dq:
            if dq is None:
                raise ValueError("this estimator was made for frames with a measured velocity, and the frame has none")
            frame[2 * n :] = dq
        memory = self._memory
        if valid is not None and not valid.all():
            memory.ints[m.MASKED] += 1
            memory.ints[m.LOSS] = 1
            return False
        t = (t_ns - self._origin_ns) * 1e-9
        renewed = bool(take_frame(memory.floats, memory.ints, t, frame))
        if renewed and memory.ints[m.UPDATES] - memory.ints[m.LEAK_SET] >= memory.ints[m.LEAK_EVERY]:
            self._hold_on()
        return renewed

    def mark_gap(self, lost: int = 0) -> None:
        """Restart the stream, with a new clock: filters start anew, parameters stay."""
        self._lost += lost
        self._seq = None
        self._origin_ns = None
        restart_stream(self._memory.floats, self._memory.ints)
        self._memory["scalars"][m.LAST_MOTION] = -np.inf
        self._excited_at[:] = np.where(np.isfinite(self._excited_at), 0.0, -np.inf)

    def reset(self) -> None:
        """Forget everything that was learned."""
        counters = self._memory.ints[m.FRAMES : m.UPDATES + 1].copy()
        self._initialise()
        self._memory.ints[m.FRAMES : m.UPDATES] = counters[:-1]
        self._resets += 1
        self._origin_ns = None

    def _hold_on(self) -> None:
        """Renew the information that the leak replaces: the present one, up to a share of the noise.

        Both limits hold for every combination of parameters, not only for each by itself: several that are unknown
        together would otherwise be held several times over, and pass for known.
        """
        memory = self._memory
        memory.ints[m.LEAK_SET] = memory.ints[m.UPDATES]
        # what was known at the start stays, for parameters that nothing has shown yet
        unit = np.maximum(np.sqrt(memory["power"] * self._inflation()) / _LEAK_EFFECT, self._start)
        scaled = self._root() / unit
        with np.errstate(over="ignore", invalid="ignore"):
            gram = scaled.T @ scaled
        if not np.isfinite(gram).all():
            return
        try:
            # parameters that no row has shown stay apart: rounding would make them follow the others
            shown = np.flatnonzero(np.count_nonzero(gram, axis=1) > 1)
            known, vectors = np.linalg.eigh(gram[np.ix_(shown, shown)])
        except np.linalg.LinAlgError:  # no convergence: the leak stays as it is until the next renewal
            return
        # the symmetric root: where variances are alike the vectors are arbitrary, and it is not
        root = np.diag(np.sqrt(np.clip(np.diag(gram), 0.0, 1.0)))
        root[np.ix_(shown, shown)] = (vectors * np.sqrt(np.clip(known, 0.0, 1.0))) @ vectors.T
        memory["leak"][:] = root * unit

    def _root(self) -> FloatArray:
        """(p, p) square root of the information, a copy without the padding."""
        return np.asarray(self._memory["R"][:, : len(self.base)] * self._memory["scalars"][m.ROOT_SCALE])

    def _inflation(self) -> float:
        """Weight of a row in units of plain noise, over the joints that have moved."""
        memory = self._memory
        moved = memory["moved"] > 0.0
        if not moved.any():
            return float(memory["scalars"][m.INFLATION])
        return float(np.mean(memory["weight2"][moved] / memory["sigma2"][moved]))

    # -- results --------------------------------------------------------------------------------

    @property
    def theta(self) -> FloatArray:
        """(p,) the present estimate, a copy."""
        return self._memory["theta"].copy()

    @property
    def information_root(self) -> FloatArray:
        """(p, p) upper triangle `R` with `R'R` the information matrix, a copy."""
        return np.triu(self._root())

    def report(self) -> EstimateReport:
        """Return the present estimate with uncertainties."""
        memory = self._memory
        s = memory["scalars"]
        inverse = _triangle_inverse(self._root())
        variance = (inverse**2).sum(axis=1)
        std = np.sqrt(variance)
        scale = np.sqrt(memory["power"] * self._inflation())  # one row's weight in units of plain noise
        short_variance = _triangle_inverse(memory["short"][0, :, : len(self.base)])
        short_std = np.sqrt((short_variance**2).sum(axis=1))
        with np.errstate(invalid="ignore"):
            effect = np.where(scale > 0.0, std * scale, np.inf)
            excited = (short_std * scale <= EXCITED_LIMIT) & (scale > 0.0)
        theta = memory["theta"].copy()
        supported = (std <= RELATIVE_STD_LIMIT * np.abs(theta)) | (effect <= TORQUE_EFFECT_LIMIT)
        now = float(s[m.ORIGIN] + (memory.ints[m.GRID] - 1) * s[m.STEP]) if memory.ints[m.BUFFERED] == 4 else 0.0
        self._excited_at[excited] = now
        status = self._status(supported, now)
        self._validated = np.where(status < _BELIEVED, theta, self._validated)
        origin = 0 if self._origin_ns is None else self._origin_ns
        return EstimateReport(
            t_ns=origin + round(float(s[m.TIME]) * 1e9),
            theta=theta,
            validated=self._validated.copy(),
            std=std,
            status=tuple(_STATUS[k] for k in status.tolist()),
            excited=np.asarray(excited),
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

    def _status(self, supported: BoolArray, now: float) -> IntArray:
        """(p,) places in `_STATUS`."""
        memory = self._memory
        touches = memory["touches"] > 0.0
        with np.errstate(invalid="ignore", divide="ignore"):
            unexplained = memory["innovation2"] > _UNEXPLAINED * memory["torque2"]
        unexplained &= memory["moved"] >= memory["scalars"][m.SETTLE_ROWS]
        frozen = now - memory["scalars"][m.LAST_MOTION] > _FROZEN_S + self.delay_s
        stale = now - self._excited_at > self.settings.stale_s
        status = np.full(supported.size, _STATUS.index("frozen")) if frozen else stale.astype(np.int64)
        status[~supported | self._lacks_constants()] = _STATUS.index("unestimated")
        status[(touches & unexplained).any(axis=1) | ~np.isfinite(memory["theta"])] = _STATUS.index("invalid")
        return status

    def _lacks_constants(self) -> BoolArray:
        """(p,) which columns are friction of a joint with an unknown velocity constant.

        Without its shaped terms the others take up what those would explain: a torque that predicts, but values that
        are not those of the names.
        """
        layout = self.base.layout
        unknown = np.isin(layout.law, self.model.friction.shaped) & (layout.shape[:, 0] == 0.0)
        friction = (layout.law >= LAW_VISCOUS) & (layout.law != LAW_OFFSET)
        return np.asarray(friction & np.isin(layout.source, layout.source[unknown]))

    @property
    def covariance(self) -> FloatArray:
        """(p, p) covariance of the present estimate."""
        inverse = _triangle_inverse(self._root())
        return np.asarray(inverse @ inverse.T)

    def set_active(self, theta: FloatArray | None, constants: FloatArray | None = None) -> None:
        """Let `torque` predict with base parameters `theta` (p,); None for the online estimate.

        A batch model brings `constants` (p,) along: the velocity constant of each column, zero where it has none.
        Other constants than before make another model, so the estimate starts anew, from `theta`.  Load-dependent
        friction takes its load from `theta`: another load changes what its rows mean, and starts it anew as well.
        Otherwise the estimate goes on; a later `reset` starts from `theta`.
        """
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
        if anew:
            self.reset()

    def _take_constants(self, columns: FloatArray) -> None:
        """Let names, predictions and the description follow the shapes `columns` (p, 3) of the base regressor."""
        shape = self.base.standard.shape.copy()
        shape[self.base.independent] = columns
        self.base = replace(self.base, standard=replace(self.base.standard, shape=shape))
        self._describe()

    def torque(self) -> tuple[int, FloatArray, FloatArray, FloatArray] | None:
        """Measured, predicted and residual torque (n,) [N*m] of the newest filtered sample, and its time [ns].

        The residual is the torque that the active model does not account for: an estimate of
        external torque.  None until the filters are full.
        """
        memory = self._memory
        if memory.ints[m.SAMPLES] == 0:
            return None
        lane = int(memory.ints[m.LAST_LANE])
        q, dq, ddq = (memory["state"][k, :, lane].copy() for k in range(3))
        at, length = int(memory.ints[m.RING_AT]), self.bank.smooth.size
        tau = memory["ring"][self.model.n : 2 * self.model.n, at : at + length] @ self.bank.smooth
        theta = memory["theta"] if self._active is None else self._active
        state = (q[None], dq[None], ddq[None])
        load = link_torque(self.model, self.base, memory["load_theta"], *state) if self.base.layout.has_load else None
        predicted = regressor(self.model, self.base.layout, *state, load=load)[0] @ theta
        s = memory["scalars"]
        t = s[m.ORIGIN] + (memory.ints[m.GRID] - 1 - self.bank.delay) * s[m.STEP]
        return (self._origin_ns or 0) + round(float(t) * 1e9), tau, predicted, tau - predicted

    # -- state ----------------------------------------------------------------------------------

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
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; the filters start anew.

        Raises
        ------
        ValueError
            If the state is of another format, model or settings, or damaged.
        """
        if state.get("format") != STATE_FORMAT:
            raise ValueError(f"state format {state.get('format')!r}, this version reads {STATE_FORMAT}")
        if state.get("hash") != self.state_hash:
            raise ValueError("the saved state belongs to another robot or other settings")
        missing = [key for key in ("floats", "ints", "validated", "excited_at") if state.get(key) is None]
        if missing:
            raise ValueError(f"the saved state lacks {', '.join(missing)}")
        floats, validated, excited_at = (
            np.asarray(state[key], dtype=np.float64) for key in ("floats", "validated", "excited_at")
        )
        ints = np.asarray(state["ints"], dtype=np.int64)
        p = len(self.base)
        if floats.shape != self._memory.floats.shape or ints.shape != self._memory.ints.shape:
            raise ValueError("the saved state has another size")
        if validated.shape != (p,) or excited_at.shape != (p,):
            raise ValueError("the saved state has another number of parameters")
        if not np.array_equal(ints[: m.FRAMES], self._memory.ints[: m.FRAMES]):
            raise ValueError("the saved state has other sizes")
        fresh = self._memory.ints[m.HEAD :]
        if not np.array_equal(ints[m.HEAD :], fresh):
            raise ValueError("the saved state has another layout")
        lost, resets = int(state.get("lost", 0)), int(state.get("resets", 0))
        backup = self._memory.floats.copy(), self._memory.ints.copy()
        self._memory.floats[:] = floats
        self._memory.ints[:] = ints
        bad = [name for name in _LEARNED if not np.isfinite(self._memory[name]).all()]
        if bad or not np.diag(self._root()).all():
            self._memory.floats[:], self._memory.ints[:] = backup
            what = f"values that are not finite in {', '.join(bad)}" if bad else "a singular information matrix"
            raise ValueError(f"the saved state holds {what}")
        self._take_constants(self._memory["shape"])
        self._validated = validated.copy()
        self._excited_at = excited_at.copy()
        self._lost, self._resets = lost, resets
        self.mark_gap(0)


def _triangle_inverse(R: FloatArray) -> FloatArray:
    """Inverse of an upper triangle; a pivot that vanishes against the largest gives a huge variance instead."""
    diagonal = np.abs(np.diag(R))
    floor = max(1e-30 * float(diagonal.max()), 1e-100)
    safe = np.asfortranarray(R)
    weak = np.flatnonzero(diagonal < floor)
    safe[weak, weak] = floor
    inverse, _ = dtrtri(safe, overwrite_c=1)
    return np.triu(np.asarray(inverse))
