"""Sudden changes of an arm, told from each other: payload, friction of a joint, its torque sensor.

    block of rows ─► mean squares ─► alarm ─► hypotheses on all blocks since ─► what has changed, or what it may be

The residual of the active model is watched joint by joint (`rt_core.online.monitors.residual_cusum`).  An alarm names
nothing. From the block on in which the sum that led to it began, every hypothesis is fitted to all blocks since
(`rt_core.online.monitors.change_hypotheses`); as soon as one leads all others and explains the change it is told, and
otherwise after `classify_s` of motion that it is ambiguous, with those that are left.  What was told becomes part of
the baseline that the residual is taken from, so that the next change is told as well: a payload is estimated on and on
while it is carried, and its release is a change back to nothing.  Time is that of motion: a standing arm shows nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from rt_core.model.parameters import ParameterLayout
from rt_core.online._state import EXTRA, PAYLOAD
from rt_core.online.monitors.change_hypotheses import Fit, begin, hypotheses, judge, normal_equations, pace_of
from rt_core.online.monitors.change_report import (
    ArmChange,
    ArmChangeKind,
    alarm,
    ambiguous_change,
    friction_change,
    payload_change,
    sensor_change,
)
from rt_core.online.monitors.payload_estimate import Carried, carried
from rt_core.online.monitors.residual_cusum import DELAY, RUN, ResidualWatch
from rt_core.online.monitors.residual_evidence import Evidence, friction_places, slopes, sum_of
from rt_core.types import BoolArray, FloatArray

ChangeState = Literal["off", "learning", "watching", "classifying"]
#: Least length of a block [s], and in periods of the cut-off: neighbours are then nearly independent.
BLOCK_S, BLOCK_PERIODS = 0.5, 5.0
_MAX_BLOCKS = 120  # that a change may have begun ago
_USED = 0.5  # of a block's rows, and the joint takes part
_BACK = 0.2  # of what a cause was: as good as gone


@dataclass(frozen=True)
class ChangeSettings:
    """When a change is told, and as what.

    Attributes
    ----------
    false_alarm_hours : float
        Mean time of motion between two false alarms of an arm [h].
    excess : float
        Relative rise of a joint's mean squared residual that is tolerated, as far as that is between 1 and 2.5 standard
        deviations of its blocks.
    error : float
        Probability that a change is told as what it is not, of changes that one of the hypotheses describes.
    explained : float
        Least share of the rise that the hypothesis which is told has to account for.
    learn_s, memory_s : float
        Motion from which the usual level is learned first, and that it is averaged over later on [s].
    classify_s : float
        Motion after which a change that cannot be told is ambiguous [s].
    settle_s : float
        Motion for which an estimate of the payload settles before the watch goes on [s].
    """

    false_alarm_hours: float = 10_000.0
    excess: float = 0.5
    error: float = 1e-3
    explained: float = 0.8
    learn_s: float = 30.0
    memory_s: float = 600.0
    classify_s: float = 20.0
    settle_s: float = 5.0


@dataclass(frozen=True, eq=False)
class _Block:
    begun_ns: int
    evidence: Evidence
    load: tuple[FloatArray, FloatArray] | None  # what it has added to the normal equations of the payload


class ChangeDetector:
    """Watches the residual of a model, and tells what has changed.

    Parameters
    ----------
    names, joints : tuple of str
        Of the p parameters and n joints.
    layout : ParameterLayout
        Of the parameters.
    update_s : float
        Time between two rows [s].
    cutoff_hz : float
        Of the rows.
    settings : ChangeSettings, optional
    """

    def __init__(
        self,
        names: tuple[str, ...],
        joints: tuple[str, ...],
        layout: ParameterLayout,
        update_s: float,
        cutoff_hz: float,
        settings: ChangeSettings | None = None,
    ) -> None:
        self.settings = s = ChangeSettings() if settings is None else settings
        self.names, self.joints = names, joints
        n = len(joints)
        self.places = friction_places(layout, n)
        self.width = EXTRA + self.places.shape[1]
        self.hypotheses = hypotheses(self.places, layout.source, slopes(layout))
        #: Length of a block [s of motion].
        self.block_s = max(BLOCK_S, BLOCK_PERIODS / cutoff_hz)
        self._block_rows = self.block_s / update_s
        self._need = max(20, round(s.learn_s / self.block_s))
        self._memory = max(self._need, round(s.memory_s / self.block_s))
        blocks = s.false_alarm_hours * 3600.0 / self.block_s
        self.watch = ResidualWatch(n, blocks, self._need, self._memory, s.excess)
        self.refer(False)

    def refer(self, active: bool, model_information: FloatArray | None = None) -> None:
        """Watch the residual of another model from now on; of none if not `active`.

        `model_information` (10, 10) is what the model knows of a payload, see `carried`.
        """
        n = len(self.joints)
        self.active = active
        self._information = np.zeros((PAYLOAD, PAYLOAD)) if model_information is None else model_information
        self._baseline = np.zeros((n, self.width - 1))
        self._load = np.zeros((PAYLOAD, PAYLOAD + 1))  # normal equations of the payload that is carried
        self._load_ns = -1  # when it was attached; negative: nothing is carried
        self._carried: Carried | None = None
        self._faulty = np.zeros(n, dtype=np.bool_)  # joints whose sensor was told faulty
        self._told: ArmChange | None = None
        self._pause = 0  # blocks until the watch goes on
        self._block = self._empty()
        self._block_ns = 0  # of the look before which it began
        self._recent: deque[_Block] = deque(maxlen=_MAX_BLOCKS)
        self._since: list[_Block] | None = None  # blocks of a change that is being classified
        self._forget_level()

    def _empty(self) -> Evidence:
        n = len(self.joints)
        return Evidence(np.zeros((n, self.width, self.width)), np.zeros(n))

    def _forget_level(self) -> None:
        n = len(self.joints)
        self.watch.forget()
        self._levels = np.zeros((3, n))  # blocks learned from, mean square, and long-run variance of a row
        self._waiting: deque[FloatArray] = deque()

    # -- observations ---------------------------------------------------------------------------

    def observe(self, evidence: Evidence, t_ns: int) -> tuple[ArmChange, ...]:
        """Take what the residual has shown since the last time, up to `t_ns`; returns what was noticed."""
        if not self.active:
            return ()
        if not self._block.rows.any():
            self._block_ns = t_ns
        self._block = sum_of((self._block, evidence))
        if self._block.rows.max(initial=0.0) < self._block_rows:
            return ()
        block = _Block(self._block_ns, self._block, None)
        self._block = self._empty()
        return self._take(block)

    def _take(self, block: _Block) -> tuple[ArmChange, ...]:
        if self._since is not None:
            self._since.append(block)
            return self._classify()
        left = block.evidence.about(self._baseline)
        moved = left.rows >= _USED * self._block_rows
        if self._pause > 0:
            self._pause -= 1
            alarms = np.zeros_like(moved)
        else:
            mean_square = np.where(moved, left.gram[:, -1, -1] / np.maximum(left.rows, 1.0), np.nan)
            alarms = self.watch.take(np.maximum(mean_square, 1e-300))
            self._learn(left, moved)
        if self._load_ns >= 0:
            block = self._weigh(block)
        self._recent.append(block)
        return self._begin(alarms) if alarms.any() else ()

    def _learn(self, left: Evidence, moved: BoolArray) -> None:
        """Let the levels follow a block, when it is as old as one that the watch learns from."""
        gram = left.gram
        own = gram[:, PAYLOAD:-1, -1]
        power = np.einsum("nkk->nk", gram[:, PAYLOAD:-1, PAYLOAD:-1])
        scores = np.where(power > 0.0, own**2 / np.where(power > 0.0, power, 1.0), np.nan)
        count = np.isfinite(scores).sum(axis=1)
        variance = np.where(np.isfinite(scores), scores, 0.0).sum(axis=1) / np.maximum(count, 1)
        level = gram[:, -1, -1] / np.maximum(left.rows, 1.0)
        self._waiting.append(np.where(moved, (np.ones_like(level), level, variance), 0.0))
        if len(self._waiting) <= DELAY:
            return
        used, level, variance = self._waiting.popleft()
        blocks, mean, long_run = self._levels
        blocks[:] = np.minimum(blocks + used, self._memory)
        gain = used / np.maximum(blocks, 1.0)
        mean += gain * (level - mean)
        long_run += gain * (variance - long_run)

    def _noise(self, left: Evidence | None = None) -> tuple[FloatArray, FloatArray]:
        """Usual mean square (n,) and long-run variance (n,) of a row; infinite of a joint that is not known yet.

        With what a fit has `left`, where that is more than usual, both are raised accordingly.
        """
        blocks, mean, long_run = self._levels
        known = (blocks >= self._need) & (mean > 0.0)
        level, variance = np.where(known, mean, 0.0), np.where(known, np.maximum(long_run, mean), np.inf)
        if left is not None:
            found = left.gram[:, -1, -1] / np.maximum(left.rows, 1.0)
            variance = variance * np.maximum(1.0, found / np.where(known, mean, np.inf))
        return level, variance

    # -- a change -------------------------------------------------------------------------------

    def _begin(self, alarms: BoolArray) -> tuple[ArmChange, ...]:
        run = int(self.watch.rows[alarms, RUN].max())
        recent = list(self._recent)
        # the first of them was loud in part only
        self._since = recent[-min(run - 1, len(recent)) :]
        for block in self._since:
            if block.load is not None:  # was taken for more of the payload that is carried
                self._load -= np.column_stack(block.load)
        self._recent.clear()
        self._waiting.clear()
        self.watch.restart()
        told = alarm([self.joints[j] for j in np.flatnonzero(alarms)], self._since[0].begun_ns)
        return (told, *self._classify())

    def _classify(self) -> tuple[ArmChange, ...]:
        s = self.settings
        assert self._since is not None
        late = len(self._since) * self.block_s >= s.classify_s
        level, variance = self._noise()
        parts = [block.evidence.about(self._baseline) for block in self._since]
        verdict = judge(self.hypotheses, sum_of(parts), level, variance, s.error, s.explained)
        first = begin(verdict.fits[0].hypothesis, parts, variance)
        if len(parts) - first > 2:
            first += 1  # that block may be of both, before and after
        if first > 0:  # blocks from before the change explain nothing
            verdict = judge(self.hypotheses, sum_of(parts[first:]), level, variance, s.error, s.explained)
        best, blocks = verdict.fits[0], self._since[first:]
        since_ns = blocks[0].begun_ns
        told: ArmChange | None = None
        if verdict.told and best.hypothesis.cause == "payload":
            told = self._payload(sum_of(parts[first:]), variance, blocks)
        elif verdict.told and best.hypothesis.cause in ("friction", "friction_of_all"):
            j = best.hypothesis.joint
            joints = list(self.joints) if j is None else [self.joints[j]]
            pace = pace_of(best.hypothesis, parts, variance, s.error)
            if pace != "unknown" or late:
                told = friction_change(best, pace, joints, self.names, self.places, since_ns)
                self._explain(best)
        elif verdict.told:
            told = self._sensor(best, since_ns)
        if told is None and late:
            told = ambiguous_change(verdict, self.joints, s.explained, since_ns)
            self._forget_level()
        if told is None:
            return ()
        self._since, self._told = None, told
        return (told,)

    def _sensor(self, best: Fit, since_ns: int) -> ArmChange:
        j = best.hypothesis.joint or 0
        at = self.width - (3 if best.hypothesis.cause == "sensor_gain" else 2)
        self._explain(best)
        recovered = bool(self._faulty[j]) and abs(self._baseline[j, at]) < _BACK * abs(best.values[0])
        if recovered:
            self._baseline[j, at] = 0.0
        self._faulty[j] = not recovered
        return sensor_change(best, self.joints[j], float(self._baseline[j, at]), recovered, since_ns)

    def _explain(self, best: Fit) -> None:
        """Make a change part of the baseline; what it leaves is learned anew."""
        self._baseline += best.hypothesis.select @ best.values
        self._forget_level()

    # -- the payload ----------------------------------------------------------------------------

    def _payload(self, evidence: Evidence, variance: FloatArray, blocks: list[_Block]) -> ArmChange | None:
        """Take over a change of the payload; None where its mass cannot be told yet."""
        change = carried(*normal_equations(self.hypotheses[0], evidence, variance), self._information)
        mass = float(change.phi[0])
        moved = self._load_ns >= 0 and not change.present
        if not moved and (change.mass.value is None or not change.present):
            return None
        self._baseline[:, :PAYLOAD] = 0.0
        self._load[:] = 0.0
        self._carried, self._load_ns = None, blocks[0].begun_ns
        for block in blocks:
            self._weigh(block)
        now = self._now()
        kind: ArmChangeKind = "payload_moved" if moved else "payload_attached" if mass > 0.0 else "payload_released"
        if kind == "payload_released" and (not now.present or abs(float(now.phi[0])) < _BACK * abs(mass)):
            self._baseline[:, :PAYLOAD] = 0.0
            self._carried, self._load_ns = None, -1
        self._pause = round(self.settings.settle_s / self.block_s)
        return payload_change(kind, change.phi, change.mass_std, self.payload(), blocks[0].begun_ns)

    def _now(self) -> Carried:
        return carried(self._load[:, :PAYLOAD], self._load[:, PAYLOAD], self._information)

    def _weigh(self, block: _Block) -> _Block:
        """Estimate the payload that is carried with one more block."""
        other = self._baseline.copy()
        other[:, :PAYLOAD] = 0.0
        left = block.evidence.about(self._baseline if self._carried is not None else other)
        variance = self._noise(left if self._carried is not None else None)[1]
        G, b = normal_equations(self.hypotheses[0], block.evidence.about(other), variance)
        self._load += np.column_stack((G, b))
        self._carried = self._now()
        self._baseline[:, :PAYLOAD] = self._carried.phi
        return _Block(block.begun_ns, block.evidence, (G, b))

    def payload(self) -> dict[str, Any] | None:
        """Return what the arm carries more than its model says, as plain data; None for nothing."""
        if self._carried is None or self._load_ns < 0:
            return None
        return {
            "since": self._load_ns * 1e-9,
            "mass": asdict(self._carried.mass),
            "centre_of_mass": [asdict(figure) for figure in self._carried.centre],
        }

    # -- results --------------------------------------------------------------------------------

    @property
    def status(self) -> ChangeState:
        """What is done at present; a joint that has not moved enough yet is not waited for."""
        if not self.active:
            return "off"
        if self._since is not None:
            return "classifying"
        return "watching" if self.watch.learned.any() else "learning"

    def report(self) -> dict[str, Any]:
        """Return what is known now, as plain data."""
        told = self._told
        last = None if told is None else {"event": told.kind, "text": told.text, "since": told.data["since"]}
        return {
            "state": self.status,
            "payload": self.payload(),
            "sensor_faults": [self.joints[j] for j in np.flatnonzero(self._faulty)],
            "last": last,
        }

    @property
    def doubt(self) -> str:
        """Why the model is not that of the arm as it is now; empty if nothing speaks against it."""
        faulty = [self.joints[j] for j in np.flatnonzero(self._faulty)]
        if faulty:
            return f"the torque sensor of {', '.join(faulty)} has changed"
        return "the arm carries a payload that its model does not know" if self._load_ns >= 0 else ""

    # -- state ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything needed to go on after a restart, but for a change that is being classified: arrays of numbers."""
        return {
            "watch": self.watch.rows.copy(),
            "levels": self._levels.copy(),
            "baseline": self._baseline.copy(),
            "load": self._load.copy(),
            "information": self._information.copy(),
            "faulty": self._faulty.astype(np.int64),
            "flags": np.array([self.active, self._load_ns, self._pause], dtype=np.int64),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned; `ValueError`, and nothing has changed, if it is another arm's."""
        fresh = self.state()
        missing = [name for name in fresh if name not in state]
        if missing:
            raise ValueError(f"the saved state of changes lacks {', '.join(missing)}")
        arrays = {name: np.array(state[name], dtype=value.dtype) for name, value in fresh.items()}
        bad = [name for name, value in fresh.items() if arrays[name].shape != value.shape]
        if bad or any(not np.isfinite(value).all() for value in arrays.values()):
            raise ValueError(f"the saved state of changes has another size, or holds no numbers: {', '.join(bad)}")
        active, load_ns, pause = arrays["flags"].tolist()
        self.refer(bool(active), arrays["information"])
        self.watch.rows[:] = arrays["watch"]
        self.watch.restart()
        self._levels, self._baseline, self._load = arrays["levels"], arrays["baseline"], arrays["load"]
        self._faulty = arrays["faulty"] > 0
        self._load_ns, self._pause = load_ns, pause
        if load_ns >= 0:
            self._carried = self._now()

    def checkpoint(self) -> dict[str, Any]:
        """Return what `rollback` takes: the state, and what was told last."""
        return {**self.state(), "told": self._told}

    def rollback(self, checkpoint: Mapping[str, Any]) -> None:
        """Be again what it was, but for a change that was being classified."""
        self.restore(checkpoint)
        self._told = checkpoint["told"]
