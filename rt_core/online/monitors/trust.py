"""Whether the online estimate can be believed: four tests on block means, snapshots and signs, and a restart.

All works on what the estimator has at hand every `LOOK_S` of motion; the kernels know nothing of it.

- Noise: the mean squared innovation of any joint over the last 5 s exceeds `LOUD` times its reference, the median of
  its own 5 s means over the last 2 minutes of quiet motion.  The statistical spread of such a mean is small (with noise
  correlated over 0.1 s a relative standard deviation of 0.2: `LOUD` lies 15 of them off); the room is for the
  structural error of a model, which changes with the motion.  It doubles in root mean square at `LOUD` = 4.
- Agreement: the estimate differs from its own snapshot of 1 to 2 minutes ago, or of before a restart, by more than
  chance.  The squared difference is whitened by the sum of both covariances, after what a payload at the flange,
  friction and offsets can explain is projected out: those may change, links do not.  The limit is the chi-squared
  quantile of `CHANCE` for the directions that are left.  The sum of covariances holds for a restarted estimate, whose
  data are others; one that goes on shares data with its snapshot, and exceeds the limit far less often.
- Signs: a Coulomb or viscous coefficient, or the inertia that a joint sees at any of some random poses, is below zero
  by more than `SIGN_STD`: the normal quantile of `CHANCE` for some 70 tests (4.2), times 1.25 for intervals that are
  too narrow.
- Restart: noise that stays high means that the estimate holds data of another arm.  It starts anew then, and is
  believed again when the new data by themselves pass all tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import chdtri

from rt_core.model.base import BaseParameters, payload_columns, random_states
from rt_core.model.friction import LAW_COULOMB, LAW_OFFSET, LAW_VISCOUS
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.online._state import EstimatorState
from rt_core.types import BoolArray, FloatArray

LOOK_S = 0.5
LOUD = 4.0
CHANCE = 1e-3
SIGN_STD = 5.3

_MEAN = 10  # blocks of the mean that is compared: 5 s
_LOUD_MEAN, _LOUD_RUN = 6, 8  # blocks of the mean that restarts the estimate, and for how many it has to be loud
_HOLD = 6  # blocks for which noise is held against the estimate after the mean is usual again
_REFERENCE, _MIN_REFERENCE = 24, 3  # means in the reference: 2 minutes; 15 s
_FIRST_SNAPSHOT = 60  # blocks of motion before the first snapshot, while the model still settles
_SNAPSHOT_EVERY = 120
_CONFIRM = 16  # blocks after a restart from which the estimate can be believed
_POSES = 6
_NOISE = ("sigma_sum", "sigma_count", "inflation_sum", "inflation_count")
_COUNTERS = ("blocks", "age", "loud", "hold", "restarted", "snapshots", "noise", "agreement", "signs")


def physical_rows(model: RobotModel, base: BaseParameters) -> FloatArray:
    """Return combinations (k, p) of the base parameters that are positive in every arm.

    Coulomb and viscous coefficients where these are the whole law, and the inertia of each joint at random poses.
    """
    layout = base.layout
    alone = np.count_nonzero(base.mapping, axis=1) == 1
    plain = np.isin(layout.law, (LAW_VISCOUS, LAW_COULOMB))
    other = (layout.law > LAW_COULOMB) & (layout.law != LAW_OFFSET)
    shaped = np.isin(layout.source, layout.source[other]) & (layout.law >= LAW_VISCOUS)
    friction = np.eye(len(base))[plain & alone & ~shaped]
    inertia = []
    q = random_states(model, _POSES)[0]
    zero, warm = np.zeros_like(q), np.full_like(q, 20.0)
    known = {"load": zero, "temperature": warm}
    still = regressor(model, layout, q, zero, zero, **known)
    for j in range(model.n):
        unit = zero.copy()
        unit[:, j] = 1.0
        inertia.append((regressor(model, layout, q, zero, unit, **known) - still)[:, j])
    rows = np.concatenate((friction, *inertia))
    return np.asarray(rows[np.abs(rows).max(axis=1) > 0.0])


def disagreement(difference: FloatArray, covariance: FloatArray, free: FloatArray) -> tuple[float, int]:
    """Return the squared difference (p,) in units of its covariance (p, p), and its degrees of freedom.

    What the columns `free` (p, k) can explain is projected out.
    """
    scale = np.sqrt(np.diag(covariance))
    root = cholesky(covariance / np.outer(scale, scale) + 1e-10 * np.eye(scale.size), lower=True)
    z = solve_triangular(root, difference / scale, lower=True)
    basis, values, _ = np.linalg.svd(solve_triangular(root, free / scale[:, None], lower=True), full_matrices=False)
    basis = basis[:, values > 1e-9 * values.max(initial=1e-300)]
    left = float(z @ z - (basis.T @ z) @ (basis.T @ z))
    return max(left, 0.0), scale.size - basis.shape[1]


class TrustMonitor:
    """Decide whether the online estimate of an arm can be believed; see the module for the tests.

    Parameters
    ----------
    model : RobotModel
    base : BaseParameters

    Attributes
    ----------
    joints : (n,) bool
        Joints with more noise than usual at the last look.
    """

    def __init__(self, model: RobotModel, base: BaseParameters) -> None:
        self.n, self.p = model.n, len(base)
        law = base.layout.law
        friction = np.eye(self.p)[:, law >= LAW_VISCOUS]
        self._free = np.column_stack((payload_columns(base, model), friction))
        size = np.linalg.norm(self._free, axis=0)
        self._free = self._free[:, size > 0.0]
        self._positive = physical_rows(model, base)
        self.begin()

    def begin(self) -> None:
        """Forget everything: the estimate is another one."""
        self._recent = np.full((_MEAN, self.n), np.nan)
        self._means = np.full((_REFERENCE, self.n), np.nan)
        self._theta = np.zeros((2, self.p))  # snapshots, the older first
        self._covariance = np.zeros((2, self.p, self.p))
        self._known = np.zeros((2, self.p))
        self._noise_levels = np.zeros((2, len(_NOISE), self.n))
        self._moved = np.zeros(self.n)
        self._count = dict.fromkeys(_COUNTERS, 0)
        self.joints = np.zeros(self.n, dtype=np.bool_)

    # -- looks ----------------------------------------------------------------------------------

    def needs_covariance(self) -> bool:
        """Whether the next look compares values; every second one does."""
        return self._count["blocks"] % 2 == 1

    def look(
        self, state: EstimatorState, theta: FloatArray, covariance: FloatArray | None, known: BoolArray | None
    ) -> bool:
        """Take a block of motion; return True if the estimate is to start anew.

        `covariance` (p, p) of the estimate `theta` (p,), and whether data support each parameter: where
        `needs_covariance`.
        """
        c = self._count
        c["blocks"] += 1
        moved = state["moved"] - self._moved > 0.0
        self._moved[:] = state["moved"]
        self._recent = np.roll(self._recent, -1, axis=0)
        self._recent[-1] = np.where(moved, state["innovation2"], np.nan)
        was_loud = c["noise"]
        restart = self._listen()
        if covariance is not None and known is not None:
            self._compare(theta, covariance, known)
        restart |= bool(was_loud and not c["noise"] and not c["restarted"])  # what shaped it is over, or adapted to
        if restart:
            self._restart(state)
        elif c["restarted"]:
            c["restarted"] += 1
            passed = covariance is not None and not (c["noise"] or c["agreement"] or c["signs"])
            if c["restarted"] > _CONFIRM and passed:
                c["restarted"] = 0
        c["age"] += 1
        if covariance is not None and known is not None and not self.doubted and c["age"] >= _FIRST_SNAPSHOT:
            self._keep(state, theta, covariance, known)
        return restart

    def _mean(self, blocks: int) -> FloatArray:
        """Return the mean (n,) of the last blocks; NaN for a joint that moved in less than half of them."""
        last = self._recent[-blocks:]
        count = np.isfinite(last).sum(axis=0)
        total = np.where(np.isfinite(last), last, 0.0).sum(axis=0)
        return np.where(2 * count >= min(blocks, _LOUD_MEAN), total / np.maximum(count, 1), np.nan)

    def _listen(self) -> bool:
        """Compare the noise with its reference; return True if it has been loud for long."""
        c = self._count
        have = np.isfinite(self._means).sum(axis=0) >= _MIN_REFERENCE
        usual = np.full(self.n, np.inf)
        usual[have] = np.nanmedian(self._means[:, have], axis=0)
        self.joints = self._mean(_MEAN) > LOUD * usual
        if self.joints.any():
            c["hold"] = _HOLD
        elif c["hold"]:
            c["hold"] -= 1
        c["noise"] = int(c["hold"] > 0)
        c["loud"] = c["loud"] + 1 if (self._mean(_LOUD_MEAN) > LOUD * usual).any() else 0
        if not self.doubted and c["blocks"] % _MEAN == 0:
            self._means = np.roll(self._means, -1, axis=0)
            self._means[-1] = self._mean(_MEAN)
        return c["loud"] >= _LOUD_RUN

    def _compare(self, theta: FloatArray, covariance: FloatArray, known: BoolArray) -> None:
        c = self._count
        value = self._positive @ theta
        std = np.sqrt(np.einsum("kp,pq,kq->k", self._positive, covariance, self._positive))
        c["signs"] = int((value < -SIGN_STD * std).any())
        c["agreement"] = 0
        both = known & (self._known[0] > 0.0)
        if c["snapshots"] and both.any():
            spread = (covariance + self._covariance[0])[np.ix_(both, both)]
            try:
                left, freedom = disagreement((theta - self._theta[0])[both], spread, self._free[both])
            except np.linalg.LinAlgError:  # not positive definite by rounding: nothing is compared
                return
            c["agreement"] = int(freedom > 0 and left > chdtri(freedom, CHANCE))

    def _keep(self, state: EstimatorState, theta: FloatArray, covariance: FloatArray, known: BoolArray) -> None:
        """Take a snapshot where one is due."""
        c = self._count
        if c["snapshots"] and c["age"] < _SNAPSHOT_EVERY:
            return
        noise = np.stack([state[name] for name in _NOISE])
        for kept, value in (
            (self._theta, theta), (self._covariance, covariance), (self._known, known), (self._noise_levels, noise),
        ):  # fmt: skip
            kept[0] = kept[1] if c["snapshots"] else value
            kept[1] = value
        c["snapshots"] += 1
        c["age"] = 0

    def _restart(self, state: EstimatorState) -> None:
        """Begin anew with the noise levels of before: those since hold what was wrong."""
        c = self._count
        c["restarted"], c["loud"] = 1, 0
        self._recent[:] = np.nan
        if c["snapshots"]:
            for name, value in zip(_NOISE, self._noise_levels[0], strict=True):
                state[name][:] = value

    # -- results --------------------------------------------------------------------------------

    @property
    def doubted(self) -> bool:
        """Whether the estimate is not to be believed."""
        c = self._count
        return bool(c["noise"] or c["agreement"] or c["signs"] or c["restarted"])

    @property
    def reasons(self) -> tuple[str, ...]:
        """Which of "noise", "signs", "disagreement" and "restarted" speak against the estimate."""
        c = self._count
        names = {"noise": "noise", "signs": "signs", "agreement": "disagreement", "restarted": "restarted"}
        return tuple(name for key, name in names.items() if c[key])

    def text(self, names: tuple[str, ...]) -> str:
        """Return why the estimate is doubted, for people, with the `names` of the joints; empty if it is not."""
        loud = ", ".join(names[j] for j in np.flatnonzero(self.joints))
        texts = {
            "noise": f"the torque of {loud} is explained much worse than usual" if loud
            else "the torque was explained much worse than usual",
            "signs": "friction or inertia of a joint would be negative: check signs, units and order of the channels",
            "disagreement": "the links are no longer those of before, and neither payload nor friction explains it: "
            "check the sensors; if the arm was rebuilt, reset the estimator",
            "restarted": "the estimate has begun anew, and the new data do not suffice yet",
        }  # fmt: skip
        return "; ".join(texts[reason] for reason in self.reasons)

    # -- state ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the state to save, as arrays."""
        return {
            "trust_recent": self._recent.copy(), "trust_means": self._means.copy(), "trust_theta": self._theta.copy(),
            "trust_covariance": self._covariance.copy(), "trust_known": self._known.copy(),
            "trust_noise": self._noise_levels.copy(), "trust_moved": self._moved.copy(),
            "trust_counters": np.array(list(self._count.values()), dtype=np.int64),
        }  # fmt: skip

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state` returned; begin anew if it is missing, as in files of earlier versions, or damaged."""
        self.begin()
        fresh = self.state()
        if any(np.shape(saved.get(key)) != value.shape for key, value in fresh.items()):
            return
        arrays = [np.array(saved[key], dtype=fresh[key].dtype) for key in fresh]
        (self._recent, self._means, self._theta, self._covariance, self._known, self._noise_levels, self._moved) = (
            arrays[:-1]
        )
        self._count = dict(zip(_COUNTERS, arrays[-1].tolist(), strict=True))
