"""Whether the online estimate can be believed: six tests, and a restart.

All works on what the estimator has at hand every `LOOK_S` of motion; the kernels know nothing of it.

- Noise: the mean squared innovation of any joint over the last 5 s exceeds `LOUD` times its reference, the largest of
  its own 5 s means over the last 2 minutes of quiet motion, four of them at least, and none while its noise level
  settles.  The statistical spread of such a mean is small (with noise correlated over 0.1 s a relative standard
  deviation of 0.2: `LOUD` lies 5 of them above the largest of four); the room is for the structural error of a model,
  which changes with the motion (on a real arm by a factor of 8).
- Agreement: the estimate differs from its own snapshot of 1 to 2 minutes ago, or of before a restart, by more than
  chance and `MODEL_ERROR`.  The squared difference is whitened by the sum of both covariances, after what a payload at
  the flange, friction and offsets can explain is projected out: those may change, links do not.  The limit is the
  chi-squared quantile of `CHANCE` for the directions that are left, and that for each parameter alone, times
  `MODEL_ERROR`: on real arms deviations between halves of a recording are up to 1.7 times the stated ones, variances 3
  times.  The sum of covariances holds for a restarted estimate; one that goes on shares data with its snapshot, and
  differs less.
- Change: the same difference with nothing projected out.  The arm has changed, by less than the noise shows, and the
  estimate follows too slowly.
- Signs: friction of a joint would drive it at its usual speed, by more than its noise and by more than `SIGN_STD`: the
  normal quantile of `CHANCE` for 7 joints (3.6), times 1.7 for the same reason.  Inertias that come out negative say
  nothing: on real arms a poor excitation and a model's error make them so (KUKA LWR4, joint 7).
- Velocity: measured velocities of joints that move are not those of the positions (`.velocity`).
- Torque: that of a joint has had one and the same value for 5 s of motion, which no sensor measures.
- Forgetting: a joint has forgotten in excess, for 0.7 s at least (`innovation_s` times ln 10: no look misses it).  Its
  parameters are not believed until that is over and the estimate agrees with what it was 1 to 3 s before, or with the
  latest snapshot: on a real arm the model's error makes it forget where the motion is as it was then.  Before, it held
  more data, so their difference has at most the covariance of the estimate: the limits are quantiles of `FORGOT`, of
  chi-squared for all and of the normal distribution for each parameter.  No `MODEL_ERROR` here: who fails is only
  learned anew, one in 20 by chance if all had been forgotten, or held until `_CONFIRM` of new data have come.
- Restart: noise that stays high, an estimate that has left its interval, or that quick forgetting has moved, means that
  it holds data of another arm.  It starts anew then, and is believed again when the new data by themselves pass all
  tests.  Between restarts the time doubles, from `_RETRY` and then `_LEVEL` on.  Noise that is level for `_LEVEL` of
  new data, which pass the noise test by themselves, is that of the motion: it becomes reference and noise level, and
  the estimate starts anew with it.  Links that differ for `_OUTDATED`, in which 99 % of the data are replaced, are
  those of the arm as it is measured, and the snapshot goes.

What has not been tested: after a restart it is not believed, the new data must have been compared with the snapshot.
Before the first one there is nothing to compare with, however long one waits: data alone decide, as in batch.  Signs
and velocities that the motion does not show, and joints that stand, say nothing either way.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import chdtri, ndtri

from rt_core.model.base import BaseParameters, payload_columns
from rt_core.model.friction import LAW_COULOMB, LAW_OFFSET, LAW_VISCOUS
from rt_core.model.robot import RobotModel
from rt_core.online import _state as m
from rt_core.online._state import EstimatorState
from rt_core.online.monitors.examination import Examination
from rt_core.online.monitors.velocity import VelocityMonitor
from rt_core.types import BoolArray, FloatArray

#: Covariance (p, p) of the estimate, whether data support each parameter, and its scale (p,), as of a report.
Values = tuple[FloatArray, BoolArray, FloatArray]

LOOK_S = 0.5
LOUD = 2.5
CHANCE = 1e-3
SIGN_STD = 6.2
MODEL_ERROR = 3.0
FORGOT = 0.05

_MEAN = 10  # blocks of the mean that is compared: 5 s
_LOUD_MEAN, _LOUD_RUN = 6, 6  # blocks of the mean that restarts the estimate, and for how many it has to be loud
_STANDING_RUN = 10  # the same while a joint stands
_HOLD = 6  # blocks for which noise is held against the estimate after the mean is usual again
_REFERENCE, _MIN_REFERENCE = 24, 4  # means in the reference: 2 minutes; 20 s
_SETTLED = 1.5  # of the rows in which a joint's noise level settles: the last mean has none of them
_FIRST_SNAPSHOT = 60  # blocks of motion before the first snapshot, while the model still settles
_SNAPSHOT_EVERY = 120
_DIVERGED = 1e12  # no parameter of an arm in SI units
_CONFIRM = 14  # blocks after a restart from which the estimate can be believed
_RETRY, _LEVEL = 12, 60  # blocks between the first two restarts, and then at least: 6 means
_OUTDATED = 1200  # blocks of disagreement after which the snapshot goes: 5 memories
_BEFORE = 2  # the snapshot of before quick forgetting; the next is the latest
_NOISE = ("sigma_sum", "sigma_count", "inflation_sum", "inflation_count")
_COUNTERS = (
    "age", "loud", "hold", "restarted", "snapshots", "noise", "agreement", "signs", "velocity", "left",
    "anew", "wait", "disputed", "untested", "since", "calm", "torque",
)  # fmt: skip

_REASONS = {
    "velocity": "velocity", "torque": "torque", "noise": "noise", "signs": "signs", "agreement": "disagreement",
    "left": "change", "restarted": "restarted",
}  # fmt: skip
_SIGNS = "friction of a joint would drive it: check signs and order of the channels"


def friction_terms(base: BaseParameters, n: int) -> BoolArray:
    """Return which parameters (n, p) are Coulomb and viscous friction of a joint of which they are all of it."""
    law, source = base.layout.law, base.layout.source
    alone = np.count_nonzero(base.mapping, axis=1) == 1
    shaped = source[(law > LAW_COULOMB) & (law != LAW_OFFSET)]
    plain = np.isin(law, (LAW_COULOMB, LAW_VISCOUS)) & alone & ~np.isin(source, shaped)
    return np.asarray(plain & (source == np.arange(n)[:, None]))


def disagreement(difference: FloatArray, covariance: FloatArray, free: FloatArray) -> tuple[float, float, int, float]:
    """Compare a difference (p,) with its covariance (p, p).

    Returns its square in units of the covariance, what the columns `free` (p, k) cannot explain of it, the degrees of
    freedom of that, and the largest square of what one parameter alone would explain of it.
    """
    scale = np.sqrt(np.diag(covariance))
    root = cholesky(covariance / np.outer(scale, scale) + 1e-10 * np.eye(scale.size), lower=True)
    columns = np.column_stack((difference[:, None], free, np.diag(scale))) / scale[:, None]
    whitened = solve_triangular(root, columns, lower=True)
    z, alone = whitened[:, 0], whitened[:, 1 + free.shape[1] :]
    basis, values, _ = np.linalg.svd(whitened[:, 1 : 1 + free.shape[1]], full_matrices=False)
    basis = basis[:, values > 1e-9 * values.max(initial=1e-300)]
    rest = z - basis @ (basis.T @ z)
    own = alone - basis @ (basis.T @ alone)
    power = (own**2).sum(axis=0)
    seen = power > 1e-6 * (alone**2).sum(axis=0)
    largest = float(((own.T @ rest)[seen] ** 2 / power[seen]).max(initial=0.0))
    return float(z @ z), float(rest @ rest), scale.size - basis.shape[1], largest


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
    wrong : (n,) bool
        Joints that move, and whose velocity or torque channel is wrong.
    shaped : (n,) bool
        Joints that have forgotten in excess, and whose parameters have not been confirmed since.
    generation : int
        Number of times that another estimate has taken the place of one that was tested.
    examined : Examination
        Latest one of the estimate's own frames.
    measured : dict of str to float
        Latest statistics, each over its limit: doubted above 1.
    """

    def __init__(self, model: RobotModel, base: BaseParameters) -> None:
        self.n, self.p = model.n, len(base)
        law = base.layout.law
        friction = np.eye(self.p)[:, law >= LAW_VISCOUS]
        self._free = np.column_stack((payload_columns(base, model), friction))
        size = np.linalg.norm(self._free, axis=0)
        self._free = self._free[:, size > 0.0]
        self.generation = 0
        self._friction = friction_terms(base, model.n)
        self.begin()

    def begin(self) -> None:
        """Forget everything: the estimate is another one."""
        self.generation += 1
        self._looks = 0
        self._recent = np.full((_LEVEL, self.n), np.nan)
        self._means = np.full((_REFERENCE, self.n), np.nan)
        # snapshots, the older first; and of before quick forgetting
        self._theta, self._known = (np.zeros((4, self.p)) for _ in range(2))
        self._covariance = np.zeros((4, self.p, self.p))
        self._noise_levels = np.zeros((4, len(_NOISE), self.n))
        self.shaped, self.wrong, self.joints = (np.zeros(self.n, dtype=np.bool_) for _ in range(3))
        self._moved = np.zeros(self.n)
        self.velocity = VelocityMonitor(self.n)
        self._torque, self._same = np.full(self.n, np.nan), np.zeros(self.n)
        self._constant: BoolArray | None = None
        self.examined = Examination.passed(self.p)
        self._count = dict.fromkeys(_COUNTERS, 0)
        self.measured = {"noise": 0.0, "signs": 0.0, "agreement": 0.0, "left": 0.0}

    # -- looks ----------------------------------------------------------------------------------

    def needs_covariance(self) -> bool:
        """Whether the next look compares values; every second one does."""
        return self._looks % 2 == 1

    def take_torque(self, tau: FloatArray) -> None:
        """Take the torques (n, L) of a window before a look."""
        self._constant = (tau == self._torque[:, None]).all(axis=1)
        self._torque = tau[:, -1].copy()

    def look(self, state: EstimatorState, values: Values | None) -> bool:
        """Take a block of motion, and `values` where `needs_covariance`; return whether to start anew."""
        c = self._count
        self._looks += 1
        moved = state["moved"] - self._moved > 0.0
        self._moved[:] = state["moved"]
        self._recent = np.roll(self._recent, -1, axis=0)
        self._recent[-1] = np.where(moved, state["innovation2"], np.nan)
        was_wrong = c["noise"] or c["velocity"] or c["torque"]
        moves = np.isfinite(self._recent[-_MEAN:]).any(axis=0)
        if self._constant is not None:
            self._same, self._constant = np.where(self._constant, self._same + moved, 0.0), None
        stuck = self._same >= _MEAN
        c["velocity"], c["torque"] = (int((joints & moves).any()) for joints in (self.velocity.joints, stuck))
        self.wrong = (self.velocity.joints | stuck) & moves
        due = self._listen(state)
        self.shaped |= state["excess"] > 0.0
        c["calm"] = 0 if (moved & (state["excess"] > 0.0)).any() else c["calm"] + 1
        theta = state["theta"]
        if values is not None:
            self._compare(theta, *values[:2])
            self._see_signs(theta, values[0], values[2])
            if self.shaped.any() and c["calm"]:
                left = self._has_left(theta, *values[:2])
                due |= left and bool(self._known[_BEFORE].any())
                self.shaped[:] &= left and c["calm"] < _CONFIRM
        # what shaped it is over, or it has diverged
        over = bool(was_wrong and not (c["noise"] or (self.velocity.joints | stuck).any()))  # not where a joint stands
        level = self._level() if c["noise"] and c["restarted"] >= _LEVEL else None
        c["since"] += 1
        restart = over or (due and c["since"] > c["wait"]) or level is not None or not np.abs(theta).max() < _DIVERGED
        if restart:
            c["since"], c["wait"] = 0, 0 if over else max(_LEVEL, 2 * c["wait"]) if c["wait"] else _RETRY
            self._restart(state, level, usual=over or not c["restarted"])
        elif c["restarted"]:
            c["restarted"] += 1
            passed = not (self.shaped.any() or c["untested"] or any(c[key] for key in _REASONS if key != "restarted"))
            if values is not None and c["restarted"] > _CONFIRM and passed:
                self._begin_anew(state, values)
        c["age"] += 1
        if values is not None and values[1].any() and not (self.doubted or self.shaped.any()):
            if c["age"] >= (_SNAPSHOT_EVERY if c["snapshots"] else _FIRST_SNAPSHOT):
                self._keep(state, values)
            self._take(state, values, _BEFORE + 1)
        return restart

    def _mean(self, blocks: int) -> FloatArray:
        """Return the mean (n,) of the last blocks; NaN for a joint that moved in less than half of them."""
        last = self._recent[-blocks:]
        count = np.isfinite(last).sum(axis=0)
        total = np.where(np.isfinite(last), last, 0.0).sum(axis=0)
        return np.where(2 * count >= min(blocks, _LOUD_MEAN), total / np.maximum(count, 1), np.nan)

    def _listen(self, state: EstimatorState) -> bool:
        """Compare the noise with its reference; return True if it has been loud for long."""
        c = self._count
        have = np.isfinite(self._means).sum(axis=0) >= _MIN_REFERENCE
        usual = np.full(self.n, np.inf)
        usual[have] = np.nanmax(self._means[:, have], axis=0)
        level = self._mean(_MEAN) / (LOUD * usual)
        self.measured["noise"] = float(np.nan_to_num(level).max(initial=0.0))
        self.joints = level > 1.0
        if self.joints.any():
            c["hold"] = _HOLD
        elif c["hold"]:
            c["hold"] -= 1
        c["noise"] = int(c["hold"] > 0)
        c["loud"] = c["loud"] + 1 if c["left"] or (self._mean(_LOUD_MEAN) > LOUD * usual).any() else 0
        if not self.doubted and self._looks % _MEAN == 0:
            self._means = np.roll(self._means, -1, axis=0)
            settled = state["moved"] >= _SETTLED * state["scalars"][m.SETTLE_ROWS]
            self._means[-1] = np.where(settled, self._mean(_MEAN), np.nan)
        # a joint that stands beside others may have an encoder that sticks, to be found by the estimate as it is
        return c["loud"] >= (_LOUD_RUN if np.isfinite(self._recent[-1]).all() else _STANDING_RUN)

    def _level(self) -> FloatArray | None:
        """Make a level (n,) that has lasted the reference, and return it; None if it still rises."""
        blocks = self._recent.reshape(2, -1, _MEAN, self.n)
        means = np.nansum(blocks, axis=2) / np.maximum(np.isfinite(blocks).sum(axis=2), 1)  # zero: the joint stands
        earlier, later = means.max(axis=1)
        if (later > LOUD * earlier).any():
            return None
        means = np.where(means > 0.0, means, np.nan).reshape(-1, self.n)
        self._means = np.concatenate((self._means[len(means) :], means))
        return np.asarray(np.maximum(earlier, later))

    def _has_left(self, theta: FloatArray, covariance: FloatArray, known: BoolArray) -> bool:
        """Whether the estimate has left what it was before quick forgetting, and the latest snapshot; or not known."""
        snapshots = (_BEFORE, 1) if self._count["snapshots"] else (_BEFORE,)
        return all(self._left(snapshot, theta, covariance, known) for snapshot in snapshots)

    def _left(self, snapshot: int, theta: FloatArray, covariance: FloatArray, known: BoolArray) -> bool:
        found = self._difference(snapshot, theta, covariance, known)
        if found is None:
            return True
        variance = np.diag(covariance + (snapshot < _BEFORE) * self._covariance[snapshot])
        z = np.abs(theta - self._theta[snapshot]) / np.sqrt(variance)
        largest = float(z[known & (self._known[snapshot] > 0.0)].max())
        return bool(found[0] > chdtri(found[4], FORGOT / 2.0) or largest > -ndtri(FORGOT / (4.0 * found[4])))

    def _compare(self, theta: FloatArray, covariance: FloatArray, known: BoolArray) -> None:
        c = self._count
        c["agreement"] = c["left"] = c["untested"] = 0
        self.measured["agreement"] = self.measured["left"] = 0.0
        if not c["snapshots"]:
            return
        found = self._difference(0, theta, covariance, known)
        c["untested"] = int(found is None)
        if found is not None and found[2] > 0:
            one = float(ndtri(CHANCE / (2.0 * found[4]))) ** 2
            level = max(found[1] / float(chdtri(found[2], CHANCE)), found[3] / one)
            self.measured["agreement"] = level / MODEL_ERROR
            c["agreement"] = int(self.measured["agreement"] > 1.0)
        c["disputed"] = c["disputed"] + 2 if c["agreement"] else 0
        if c["disputed"] >= _OUTDATED and not (c["noise"] or c["velocity"] or c["torque"] or c["signs"]):
            c["agreement"] = c["snapshots"] = c["disputed"] = c["age"] = 0
            return
        # the links are those of before a restart for longer than the rest
        found = self._difference(1, theta, covariance, known) if c["anew"] else found
        if found is not None and not c["restarted"]:
            self.measured["left"] = found[0] / (MODEL_ERROR * float(chdtri(found[4], CHANCE)))
            c["left"] = int(self.measured["left"] > 1.0)

    def _difference(
        self, snapshot: int, theta: FloatArray, covariance: FloatArray, known: BoolArray
    ) -> tuple[float, float, int, float, int] | None:
        """Return what `disagreement` does about a snapshot, and the number of parameters; None if there are none."""
        both = known & (self._known[snapshot] > 0.0)
        if not both.any():
            return None
        # of what is older than quick forgetting the data are among those of the estimate
        spread = (covariance + (snapshot < _BEFORE) * self._covariance[snapshot])[np.ix_(both, both)]
        difference = (theta - self._theta[snapshot])[both]
        if np.isfinite(spread).all() and np.isfinite(difference).all():  # else the estimate is invalid
            with suppress(np.linalg.LinAlgError):  # not positive definite by rounding: nothing is compared
                return *disagreement(difference, spread, self._free[both]), int(both.sum())
        return None

    def _see_signs(self, theta: FloatArray, covariance: FloatArray, scale: FloatArray) -> None:
        """Look for friction that would drive a joint at its usual speed, by more than the noise."""
        rows = np.where(self._friction > 0.0, scale, 0.0)  # a scale may be infinite
        values, variances = rows @ theta, ((rows @ covariance) * rows).sum(axis=1)
        drives = (values < -1.0) & (variances > 0.0)
        self.measured["signs"] = float((-values[drives] / (SIGN_STD * np.sqrt(variances[drives]))).max(initial=0.0))
        self._count["signs"] = int(self.measured["signs"] > 1.0)

    def _keep(self, state: EstimatorState, values: Values) -> None:
        """Take a snapshot."""
        c = self._count
        for _ in range(1 if c["snapshots"] else 2):  # the older one, too
            self._take(state, values, 1)
        c["snapshots"] += 1
        c["age"] = c["anew"] = c["wait"] = 0

    def _take(self, state: EstimatorState, values: Values, at: int, *, shift: bool = True) -> None:
        noise = np.stack([state[name] for name in _NOISE])
        taken = (state["theta"], *values[:2], noise)
        kept = (self._theta, self._covariance, self._known, self._noise_levels)
        for array, value in zip(kept, taken, strict=True):
            array[at - 1] = array[at] if shift else array[at - 1]
            array[at] = value

    def _begin_anew(self, state: EstimatorState, values: Values) -> None:
        """Believe an estimate that has begun anew: from now on it is compared with itself."""
        c = self._count
        c["restarted"] = c["left"] = 0
        if c["snapshots"]:
            self._take(state, values, 1, shift=False)
            c["age"], c["anew"] = 0, 1

    def _restart(self, state: EstimatorState, level: FloatArray | None, *, usual: bool) -> None:
        """Begin anew, with the noise `level` (n,), or the `usual` where later ones hold what was wrong and is over.

        While it goes on, they grow with it: else forgetting would be fast for ever, and take all information.
        """
        c = self._count
        c["restarted"], c["loud"], c["left"] = 1, 0, 0
        self._recent[:] = np.nan
        self._known[_BEFORE:] = 0.0
        self.shaped[:] = False
        self.examined = Examination.passed(self.p)
        if level is not None:
            c["noise"] = c["hold"] = 0
            grown = np.where(level > 0.0, level / state["sigma2"], 1.0)
            for name in ("sigma_sum", "sigma2", "weight2"):
                state[name][:] *= grown
        elif c["snapshots"] and usual:
            for name, value in zip(_NOISE, self._noise_levels[0], strict=True):
                state[name][:] = value
        if not np.abs(state["theta"]).max() < _DIVERGED:
            state["theta"][:] = self._theta[0]  # zero before the first snapshot

    # -- results --------------------------------------------------------------------------------

    @property
    def motion_s(self) -> float:
        """Motion since the estimate began, or began anew [s]."""
        return LOOK_S * self._count["since"]

    @property
    def doubted(self) -> bool:
        """Whether the estimate is not to be believed, by what it shows itself; `reasons` count its examination, too."""
        c = self._count
        return any(c[key] for key in _REASONS)

    @property
    def reasons(self) -> tuple[str, ...]:
        """What speaks against the estimate: values of `_REASONS`, and "diagnosis" of its latest examination."""
        c = self._count
        return (*(_REASONS[key] for key in _REASONS if c[key]), *(("diagnosis",) if self.examined.wrong else ()))

    def text(self, names: tuple[str, ...]) -> str:
        """Return why the estimate is doubted, for people, with the `names` of the joints; empty if it is not."""
        loud = ", ".join(names[j] for j in np.flatnonzero(self.joints))
        texts = {
            "velocity": self.velocity.text(names), "torque": self._torque_text(names),
            "noise": f"the torque of {loud} is explained much worse than usual" if loud
            else "the torque was explained much worse than usual",
            "signs": _SIGNS,
            "disagreement": "the links are no longer those of before, and neither payload nor friction explains it: "
            "check the sensors; if the arm was rebuilt, reset the estimator",
            "change": "the estimate leaves what it was: something has changed",
            "restarted": "the estimate has restarted, and the new data are not sufficient yet",
            "diagnosis": f"by the latest frames, examined as by identify, {self.examined.text}",
        }  # fmt: skip
        return "; ".join(texts[reason] for reason in self.reasons)

    def _torque_text(self, names: tuple[str, ...]) -> str:
        stuck = ", ".join(names[j] for j in np.flatnonzero(self._same >= _MEAN)) if self._count["torque"] else ""
        return f"the torque of {stuck} stays where it is while the joint moves: check the channel" if stuck else ""

    def broken(self, names: tuple[str, ...]) -> str:
        """Return why the channels themselves are wrong, so that no cause is to be sought in the arm; empty if not."""
        return self.velocity.text(names) or self._torque_text(names) or (_SIGNS if self._count["signs"] else "")

    # -- state ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the state to save, as arrays."""
        return {
            "trust_recent": self._recent.copy(), "trust_means": self._means.copy(), "trust_theta": self._theta.copy(),
            "trust_covariance": self._covariance.copy(), "trust_known": self._known.copy(),
            "trust_noise": self._noise_levels.copy(), "trust_moved": self._moved.copy(),
            "trust_shaped": self.shaped.copy(), "trust_velocity": self.velocity.sums.copy(),
            "trust_torque": np.stack((self._torque, self._same)), "trust_velocity_held": self.velocity.held(),
            "trust_counters": np.array(list(self._count.values()), dtype=np.int64),
            **self.examined.state(),
        }  # fmt: skip

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state` returned; begin anew if it is missing, as in files of earlier versions, or damaged."""
        self.begin()
        fresh = {key: value for key, value in self.state().items() if key.startswith("trust_")}
        # missing in files of earlier versions
        held = np.array(saved.get("trust_velocity_held", fresh["trust_velocity_held"]), dtype=np.float64)
        del fresh["trust_velocity_held"]
        if any(np.shape(saved.get(key, ())) != value.shape for key, value in fresh.items()):
            return
        arrays = [np.array(saved[key], dtype=fresh[key].dtype) for key in fresh]
        (
            self._recent, self._means, self._theta, self._covariance, self._known, self._noise_levels, self._moved,
            self.shaped, self.velocity.sums, (self._torque, self._same),
        ) = arrays[:-1]  # fmt: skip
        self.velocity.hold(held)
        self.examined = Examination.restored(saved, self.p)
        self._count = dict(zip(_COUNTERS, arrays[-1].tolist(), strict=True))
        self._count["velocity"] = int(self.velocity.joints.any())
