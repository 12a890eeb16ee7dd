"""Detect and classify sudden changes of an arm: payload, friction of a joint, torque sensor.

    block of rows ─► mean squares ─► alarm ─► hypotheses on all blocks since ─► cause, or possible causes

A CUSUM watches the residual of the active model joint by joint (`rt_core.online.monitors.residual_cusum`).  After an
alarm every hypothesis is fitted to all blocks since its CUSUM began to rise
(`rt_core.online.monitors.change_hypotheses`).  A hypothesis that leads all others and explains the change is reported;
otherwise the change is reported as ambiguous after `classify_s` of motion.  A reported change becomes part of the
baseline of the residual, so that the next one can be found: the estimate of a payload continues while it is carried,
and its release is a change back to nothing.  All times are times of motion.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from rt_core.online._saved_state import saved_arrays
from rt_core.online._state import EXTRA, PAYLOAD
from rt_core.online.monitors.change_hypotheses import Fit, hypotheses, judge, normal_equations, onset, pace_of
from rt_core.online.monitors.change_report import (
    ArmChange,
    ArmChangeKind,
    alarm,
    ambiguous_change,
    friction_change,
    payload_change,
    sensor_change,
)
from rt_core.online.monitors.change_rules import ChangeSettings, payload_doubt, turns_friction
from rt_core.online.monitors.drift import Watched
from rt_core.online.monitors.payload_estimate import PayloadEstimate, estimate_payload
from rt_core.online.monitors.residual_cusum import DELAY, RUN, ResidualCusum
from rt_core.online.monitors.residual_evidence import Evidence, friction_columns, slopes, sum_of
from rt_core.types import BoolArray, FloatArray

ChangeState = Literal["off", "learning", "watching", "classifying"]
#: Minimum length of a block [s], and in periods of the cut-off: neighbours are then nearly independent.
BLOCK_S, BLOCK_PERIODS = 0.5, 5.0
_MAX_BLOCKS = 120  # kept for the time before an alarm
_USED = 0.5  # of a block's rows that a joint needs to take part
#: Motion before friction or a sensor is blamed [s].  In few poses a fault that no hypothesis describes, as an encoder's
#: offset or scale, looks like one of them: of 144 simulated runs with such faults 9 had a wrong cause after 3 s, 2
#: after 8 s, and none from 10 s on (`benchmarks/fault_cases.py`, 3 arms, 8 motions of each).
_SENSOR_S = 12.0
_BACK = 0.2  # share of a cause below which it counts as gone


@dataclass(frozen=True, eq=False)
class _Block:
    begun_ns: int
    evidence: Evidence
    load: tuple[FloatArray, FloatArray] | None  # its part in the normal equations of the payload


class ChangeDetector:
    """Detect changes in the residual of a model and report their causes.

    Parameters
    ----------
    watched : Watched
    update_s : float
        Time between two rows [s].
    cutoff_hz : float
        Of the rows.
    settings : ChangeSettings, optional
    """

    def __init__(
        self, watched: Watched, update_s: float, cutoff_hz: float, settings: ChangeSettings | None = None
    ) -> None:
        self.settings = s = ChangeSettings() if settings is None else settings
        self.names, self.joints, layout = watched
        n = len(self.joints)
        self.places = friction_columns(layout, n)
        self.width = EXTRA + self.places.shape[1]
        self.hypotheses = hypotheses(self.places, layout.source, slopes(layout))
        #: Length of a block [s of motion].
        self.block_s = max(BLOCK_S, BLOCK_PERIODS / cutoff_hz)
        self._block_rows = self.block_s / update_s
        self._need = max(20, round(s.learn_s / self.block_s))
        self._memory = max(self._need, round(s.memory_s / self.block_s))
        blocks = s.false_alarm_hours * 3600.0 / self.block_s
        self.watch = ResidualCusum(n, blocks, self._need, self._memory, s.excess)
        self.set_model(False)

    def set_model(
        self, active: bool, model_information: FloatArray | None = None, theta: FloatArray | None = None
    ) -> None:
        """Set the model whose residual is watched; none if not `active`.

        `model_information` (10, 10) is the information of the model about a payload, see `estimate_payload`.  `theta`
        (p,) are its parameters: friction that would turn its sign is then no cause.
        """
        n = len(self.joints)
        self.active = active
        self._information = np.zeros((PAYLOAD, PAYLOAD)) if model_information is None else model_information
        self._friction = np.full(self.places.shape, np.nan)  # (n, terms) of the model
        if theta is not None:
            self._friction = np.where(self.places >= 0, np.asarray(theta)[self.places], np.nan)
        self._doubt = ""  # why the best cause of the change under classification is not named
        self._baseline = np.zeros((n, self.width - 1))
        self._load = np.zeros((PAYLOAD, PAYLOAD + 1))  # normal equations of the payload that is carried
        self._load_ns = -1  # when it was attached; negative without a payload
        self._carried: PayloadEstimate | None = None
        self._faulty = np.zeros(n, dtype=np.bool_)  # joints with a reported sensor fault
        self._last: ArmChange | None = None
        self._broken = ""
        self._pause = 0  # blocks until detection goes on
        self._block = self._empty()
        self._block_ns = 0  # time of its begin
        self._recent: deque[_Block] = deque(maxlen=_MAX_BLOCKS)
        self._since: list[_Block] | None = None  # blocks of the change under classification
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

    def observe(self, evidence: Evidence, t_ns: int, broken: str = "") -> tuple[ArmChange, ...]:
        """Add the evidence since the last call, up to `t_ns`; return the changes found.

        `broken` says why the channels are not to be believed at present: no cause is then named.
        """
        if not self.active:
            return ()
        self._broken = broken
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
        """Update the levels with the block that is `DELAY` blocks old, as the CUSUM does."""
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
        """Return the usual mean square (n,) and long-run variance (n,) of a row; infinite for unknown joints.

        The variance is raised where the evidence `left` by a fit is larger than usual.
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
        # the change began within the first of them
        self._since = recent[-min(run - 1, len(recent)) :]
        for block in self._since:
            if block.load is not None:  # it was added to the present payload
                self._load -= np.column_stack(block.load)
        self._recent.clear()
        self._waiting.clear()
        self.watch.restart()
        found = alarm([self.joints[j] for j in np.flatnonzero(alarms)], self._since[0].begun_ns)
        return (found, *self._classify())

    def _classify(self) -> tuple[ArmChange, ...]:
        s = self.settings
        assert self._since is not None
        late = len(self._since) * self.block_s >= s.classify_s
        level, variance = self._noise()
        parts = [block.evidence.about(self._baseline) for block in self._since]
        verdict = judge(self.hypotheses, sum_of(parts), level, variance, s.error, s.explained)
        first = onset(verdict.fits[0].hypothesis, parts, variance)
        if len(parts) - first > 2:
            first += 1  # the change may be in the middle of that block
        if first > 0:  # leave out blocks from before the change
            verdict = judge(self.hypotheses, sum_of(parts[first:]), level, variance, s.error, s.explained)
        best, blocks = verdict.fits[0], self._since[first:]
        since_ns = blocks[0].begun_ns
        change: ArmChange | None = None
        self._doubt = self._broken
        least_s = s.least_s if best.hypothesis.cause == "payload" else _SENSOR_S
        if self._doubt or not verdict.decisive or len(self._since) * self.block_s < least_s:
            pass
        elif best.hypothesis.cause == "payload":
            change = self._payload(sum_of(parts[first:]), variance, blocks)
        elif turns_friction(best, self._friction, self._baseline):
            self._doubt = "friction would be negative"
        elif best.hypothesis.cause in ("friction", "friction_of_all"):
            j = best.hypothesis.joint
            joints = list(self.joints) if j is None else [self.joints[j]]
            pace = pace_of(best.hypothesis, parts, variance, s.error)
            if pace != "unknown" or late:
                change = friction_change(best, pace, joints, self.names, self.places, since_ns)
                self._explain(best)
        elif best.hypothesis.cause != "gain_of_all":
            change = self._sensor(best, since_ns)
        if change is None and late:
            change = ambiguous_change(verdict, self.joints, s.explained, since_ns, self._doubt)
            self._forget_level()
        if change is None:
            return ()
        self._since, self._last = None, change
        return (change,)

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
        """Add a change to the baseline; the level of the remaining residual is learned again."""
        self._baseline += best.hypothesis.select @ best.values
        self._forget_level()

    # -- the payload ----------------------------------------------------------------------------

    def _payload(self, evidence: Evidence, variance: FloatArray, blocks: list[_Block]) -> ArmChange | None:
        """Return a change of the payload and start its estimate; None if its mass is not determined yet."""
        change = estimate_payload(*normal_equations(self.hypotheses[0], evidence, variance), self._information)
        mass = float(change.phi[0])
        moved = self._load_ns >= 0 and not change.present
        if not moved and (change.mass.value is None or not change.present):
            return None
        self._doubt = payload_doubt(change, self._carried, self.settings.capacity_kg)
        if self._doubt:
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

    def _now(self) -> PayloadEstimate:
        return estimate_payload(self._load[:, :PAYLOAD], self._load[:, PAYLOAD], self._information)

    def _weigh(self, block: _Block) -> _Block:
        """Update the estimate of the payload with one more block."""
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
        """Return the payload that the arm carries beyond its model, as plain data; None without one."""
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
        """Present state; "watching" as soon as one joint is learned."""
        if not self.active:
            return "off"
        if self._since is not None:
            return "classifying"
        return "watching" if self.watch.learned.any() else "learning"

    def report(self) -> dict[str, Any]:
        """Return state, payload, sensor faults and last change, as plain data."""
        found = self._last
        last = None if found is None else {"event": found.kind, "text": found.text, "since": found.data["since"]}
        return {
            "state": self.status, "payload": self.payload(),
            "sensor_faults": [self.joints[j] for j in np.flatnonzero(self._faulty)], "last": last,
        }  # fmt: skip

    @property
    def invalid_reason(self) -> str:
        """Reason why the model does not describe the present arm; empty if it does."""
        faulty = [self.joints[j] for j in np.flatnonzero(self._faulty)]
        if faulty:
            return f"the torque sensor of {', '.join(faulty)} has changed"
        return "the arm carries a payload that its model does not know" if self._load_ns >= 0 else ""

    # -- state ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the state to save, as arrays; a change under classification is left out."""
        return {
            "watch": self.watch.rows.copy(), "levels": self._levels.copy(), "baseline": self._baseline.copy(),
            "load": self._load.copy(), "information": self._information.copy(),
            "faulty": self._faulty.astype(np.int64), "friction": self._friction.copy(),
            "flags": np.array([self.active, self._load_ns, self._pause], dtype=np.int64),
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned; raise `ValueError`, without a change, if it is another arm's."""
        fresh = self.state()
        friction = np.array(state.get("friction", fresh.pop("friction")), dtype=np.float64)  # files of before lack it
        arrays = saved_arrays(state, fresh, " of changes")
        if any(not np.isfinite(value).all() for value in arrays.values()):
            raise ValueError("the saved state of changes holds no numbers")
        active, load_ns, pause = arrays["flags"].tolist()
        self.set_model(bool(active), arrays["information"])
        self.watch.rows[:] = arrays["watch"]
        self.watch.restart()
        if friction.shape == self._friction.shape:
            self._friction = friction
        self._levels, self._baseline, self._load = arrays["levels"], arrays["baseline"], arrays["load"]
        self._faulty = arrays["faulty"] > 0
        self._load_ns, self._pause = load_ns, pause
        if load_ns >= 0:
            self._carried = self._now()

    def snapshot(self) -> dict[str, Any]:
        """Return a snapshot for `rollback`: the state and the last change."""
        return {**self.state(), "last": self._last}

    def rollback(self, snapshot: Mapping[str, Any]) -> None:
        """Restore a snapshot; a change under classification is lost."""
        self.restore(snapshot)
        self._last = snapshot["last"]
