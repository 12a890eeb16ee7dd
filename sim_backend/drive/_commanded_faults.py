"""Faults and wrong wiring of a simulated arm that follows commands.

Times of faults count while set values move the arm, from the last enabling: a fault occurs at the same place of a
motion regardless of pauses.
"""

from collections.abc import Sequence

import numpy as np

from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from rt_core.types import BoolArray
from sim_backend.arm.settings import DynamicsParameter, FaultSettings, WiringSettings
from sim_backend.drive.drive_arm import DriveArm
from sim_backend.errors import SimulationConfigError

_DRY: tuple[DynamicsParameter, ...] = ("coulomb", "breakaway")


class Disturbance:
    """Faults of an arm, of known joints; `tripped` (n,) drives since the last enabling; `silent`: no bus."""

    def __init__(self, faults: Sequence[FaultSettings], arm: DriveArm) -> None:
        self._arm = arm
        names = [joint.name for joint in arm.model.joints]
        for fault in faults:
            if fault.joint is not None and fault.joint not in names:
                raise SimulationConfigError(
                    f"fault after {fault.after_s:g} s: '{fault.joint}' is not a joint of robot '{arm.model.name}': "
                    + ", ".join(names)
                )
        self._faults = [
            (fault, 0 if fault.joint is None else names.index(fault.joint))
            for fault in sorted(faults, key=lambda fault: fault.after_s)
        ]
        fields = [field for _, _, field in arm.model.friction.terms]
        self._dry = tuple(name for name in _DRY if name in fields)
        if not self._dry and any(fault.kind == "jam" for fault in faults):
            raise SimulationConfigError(f"robot '{arm.model.name}' has no dry friction that a joint could be jammed by")
        self._silent_s = 0.0
        self._pushed_s = 0.0
        self._jammed: set[int] = set()
        self.restart()

    @property
    def silent(self) -> bool:
        """Whether the bus does not answer."""
        return self._silent_s > 0.0

    def restart(self) -> None:
        """Restart, as drives are enabled and reset their faults."""
        self.tripped: BoolArray = np.zeros(self._arm.n, np.bool_)
        self._moved_s = 0.0
        self._next = 0
        self._end_push()
        self._stuck: dict[int, float | None] = {}
        self._jump, self._heat = np.zeros(self._arm.n), np.full(self._arm.n, -np.inf)

    def advance(self, period_s: float, moves: bool) -> None:
        self._silent_s = max(0.0, self._silent_s - period_s)
        self._moved_s += period_s if moves else 0.0
        if self._pushed_s > 0.0:
            left_s = self._pushed_s - period_s
            if left_s > 0.5 * period_s:
                self._pushed_s = left_s
            else:
                self._end_push()
        while self._next < len(self._faults) and self._faults[self._next][0].after_s < self._moved_s:
            self._begin(*self._faults[self._next])
            self._next += 1

    def _begin(self, fault: FaultSettings, joint: int) -> None:
        value = fault.value or 0.0
        if fault.kind == "drive_fault":
            self.tripped[joint] = True
        elif fault.kind == "stuck_encoder":
            self._stuck[joint] = None
        elif fault.kind == "encoder_jump":
            self._jump[joint] += value
        elif fault.kind == "heat":
            self._heat[joint] = value
        elif fault.kind == "silence":
            self._silent_s = fault.duration_s or 0.0
        elif fault.kind == "push":
            self._pushed_s = fault.duration_s or 0.0
            self._arm.set_outside_force(fault.force or (0.0, 0.0, 0.0))
        else:
            self._jam(joint, value)

    def _end_push(self) -> None:
        if self._pushed_s:
            self._pushed_s = 0.0
            self._arm.set_outside_force((0.0, 0.0, 0.0))

    def _jam(self, joint: int, torque: float) -> None:
        if joint in self._jammed:
            return
        self._jammed.add(joint)
        for name in self._dry:
            self._arm.set_dynamics(joint, name, value=torque)

    def distort(self, frame: JointFrame) -> None:
        """Apply the faults of sensors to `frame`."""
        if frame.q is not None:
            frame.q += self._jump
            for joint, held in self._stuck.items():
                self._stuck[joint] = frame.q[joint] = frame.q[joint] if held is None else held
                if frame.dq is not None:
                    frame.dq[joint] = 0.0
        if frame.temperature is not None:
            np.maximum(frame.temperature, self._heat, out=frame.temperature)


class Wiring:
    """Wrongly wired or scaled channels of frames; `SimulationConfigError` for an unknown joint."""

    def __init__(self, wiring: Sequence[WiringSettings], model: RobotModel) -> None:
        names = [joint.name for joint in model.joints]
        self._changes: list[tuple[str, int, int, float]] = []
        for entry in wiring:
            for name in (entry.joint, entry.source):
                if name is not None and name not in names:
                    raise SimulationConfigError(
                        f"wiring: '{name}' is not a joint of robot '{model.name}': {', '.join(names)}"
                    )
            joint = names.index(entry.joint)
            source = joint if entry.source is None else names.index(entry.source)
            self._changes.append((entry.channel, joint, source, entry.factor))

    def apply(self, frame: JointFrame) -> None:
        true = {channel: getattr(frame, channel) for channel, *_ in self._changes}
        for channel, joint, source, factor in self._changes:
            if true[channel] is None:
                continue
            values = getattr(frame, channel)
            if values is true[channel]:
                values = true[channel].copy()
                setattr(frame, channel, values)
            values[joint] = factor * true[channel][source]
