"""Signals of a simulated arm that are wired or scaled wrongly: what commissioning is there to find."""

from __future__ import annotations

from collections.abc import Sequence

from drivers.frame import JointFrame
from rt_core.model.robot import RobotModel
from sim_backend.arm.settings import WiringSettings
from sim_backend.errors import SimulationConfigError


class Wiring:
    """Changes the channels of frames.

    Parameters
    ----------
    wiring : sequence of WiringSettings
    model : RobotModel

    Raises
    ------
    SimulationConfigError
        A joint that there is not.
    """

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
        """Let `frame` say what is measured by these wires."""
        true = {channel: getattr(frame, channel) for channel, *_ in self._changes}
        for channel, joint, source, factor in self._changes:
            if true[channel] is None:
                continue
            values = getattr(frame, channel)
            if values is true[channel]:
                values = true[channel].copy()
                setattr(frame, channel, values)
            values[joint] = factor * true[channel][source]
