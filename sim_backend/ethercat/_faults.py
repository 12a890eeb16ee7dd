"""Fault scripts: what goes wrong on a simulated segment, and when.

A script is the entries

    [[fault]]
    kind = "cut"
    at_s = 12.5       # seconds since the segment was operational; or cycle = 12500
    after = 3

of a segment's file (`sim_backend.ethercat.settings`).  A `FaultSchedule`, told when the segment became operational,
says which faults are due, and each brings itself about on segment and machine.  Slaves are given by the name of their
joint, or by their number along the cable, from 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from sim_backend.arm.settings import NonNegative, Table
from sim_backend.errors import SimulationConfigError
from sim_backend.ethercat._controller import SlaveController
from sim_backend.ethercat._machine import Machine
from sim_backend.ethercat._segment import Segment

Count = Annotated[int, Field(ge=1)]
Code = Annotated[int, Field(ge=1, le=0xFFFF)]
SlaveReference = Annotated[int, Field(ge=0, strict=True)] | Annotated[str, Field(min_length=1, strict=True)]


class FaultScriptError(SimulationConfigError):
    """A fault of what there is not; names entry and key."""


class _Fault(Table, ABC):
    at_s: NonNegative | None = None
    """Time since the segment was operational [s]."""
    cycle: Annotated[int, Field(ge=0)] | None = None
    """Or the machine's cycle, counted from there."""

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if (self.at_s is None) == (self.cycle is None):
            raise ValueError("give either at_s or cycle")
        return self

    @abstractmethod
    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:
        """Bring the fault about; `slave` has no meaning where the fault is not that of one slave."""


class _SlaveFault(_Fault):
    slave: SlaveReference
    """Name of the joint, or number along the cable from 0."""


class LostFrame(_Fault):
    """The next frames are lost, on their way to the slaves or back."""

    kind: Literal["lost_frame"]
    count: Count = 1
    after: Literal["master", "slaves"] = "master"
    """What has had them: the master only, or the slaves too, who do what they ask for."""

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        if self.after == "slaves":
            segment.drop_replies(self.count)
        else:
            segment.drop_frames(self.count)


class Cut(_Fault):
    """The cable breaks behind the first `after` slaves."""

    kind: Literal["cut"]
    after: Annotated[int, Field(ge=0)]

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        segment.cut(self.after)


class Mend(_Fault):
    """All cables are plugged in again."""

    kind: Literal["mend"]

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        segment.mend()


class PowerOff(_SlaveFault):
    """A slave loses its power: nothing passes it, its motor has no torque, its brake closes."""

    kind: Literal["power_off"]

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        segment.power_off(slave)


class PowerOn(_SlaveFault):
    """It has power again, and starts."""

    kind: Literal["power_on"]

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        segment.power_on(slave)


class WorkingCounterDrop(_SlaveFault):
    """A slave passes the next frames on without taking part."""

    kind: Literal["wkc_drop"]
    frames: Count = 1

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        segment.deaf(slave, self.frames)


class AlError(_SlaveFault):
    """A slave falls to SAFEOP with an AL status code."""

    kind: Literal["al_error"]
    code: Code

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        segment.al_error(slave, self.code)


class EmergencyMessage(_SlaveFault):
    """A slave sends an emergency message; its drive goes on."""

    kind: Literal["emergency"]
    code: Code

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        segment.emergency(slave, self.code)


class StuckEncoder(_SlaveFault):
    """A drive's encoder repeats its last reading, or reads again."""

    kind: Literal["stuck_encoder"]
    stuck: bool = True

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        machine.stuck_encoder(slave, self.stuck)


class EncoderJump(_SlaveFault):
    """A drive's encoder reading jumps, for good."""

    kind: Literal["encoder_jump"]
    counts: int

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        machine.encoder_jump(slave, self.counts)


class ClockDrift(_SlaveFault):
    """A slave's clock runs fast, or slow where `ppm` is negative."""

    kind: Literal["clock_drift"]
    ppm: Annotated[float, Field(ge=-1000.0, le=1000.0)]

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        segment.drift_clock(slave, self.ppm)


class ClockStep(_SlaveFault):
    """A slave's clock jumps."""

    kind: Literal["clock_step"]
    ns: int

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        segment.step_clock(slave, self.ns)


class SlowReply(_Fault):
    """The next frames come back late."""

    kind: Literal["slow_reply"]
    ns: Count
    frames: Count = 1

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        segment.delay_replies(self.ns, self.frames)


class RefuseOp(_SlaveFault):
    """A slave does not go to OP any more, or does again; one that is there stays."""

    kind: Literal["refuse_op"]
    refuse: bool = True
    code: Code = 0x001E
    """AL status code that it says; by default "invalid input configuration"."""

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        controller = segment.controllers[slave]
        if not isinstance(controller, SlaveController):
            raise TypeError(f"slave {slave} is a {type(controller).__name__}, which cannot refuse OP")
        controller.refuse_op, controller.refuse_op_code = self.refuse, self.code


class DriveFault(_SlaveFault):
    """A drive trips with an error code of its own."""

    kind: Literal["drive_fault"]
    code: Code

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        machine.drive_fault(slave, self.code)


class SafeTorqueOff(_SlaveFault):
    """A drive's safe-torque-off input is opened, or closed again."""

    kind: Literal["sto"]
    active: bool = True

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        machine.safe_torque_off(slave, self.active)


class Mains(_SlaveFault):
    """The power for a drive's motor goes, or comes again."""

    kind: Literal["mains"]
    on: bool = False

    def apply(self, segment: Segment, machine: Machine, slave: int) -> None:  # noqa: ARG002
        machine.mains(slave, self.on)


Fault: TypeAlias = Annotated[
    LostFrame
    | Cut
    | Mend
    | PowerOff
    | PowerOn
    | WorkingCounterDrop
    | AlError
    | EmergencyMessage
    | StuckEncoder
    | EncoderJump
    | ClockDrift
    | ClockStep
    | SlowReply
    | RefuseOp
    | DriveFault
    | SafeTorqueOff
    | Mains,
    Field(discriminator="kind"),
]


class FaultScript(Table):
    """The faults of a segment, in the order of their file."""

    fault: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class Action:
    """A fault that is due, on a slave whose number is known."""

    fault: Fault
    slave: int

    def apply(self, segment: Segment, machine: Machine) -> None:
        """Bring it about."""
        self.fault.apply(segment, machine, self.slave)


class FaultSchedule:
    """The faults of a script in the order of their times.

    Parameters
    ----------
    script : FaultScript
    names : sequence of str
        Joints of the slaves, along the cable.

    Raises
    ------
    FaultScriptError
        A slave that there is not.
    """

    def __init__(self, script: FaultScript, names: Sequence[str]) -> None:
        self._names = list(names)
        actions = [Action(fault, self._number(place, fault)) for place, fault in enumerate(script.fault)]
        self._timed = sorted((a for a in actions if a.fault.at_s is not None), key=lambda a: a.fault.at_s or 0.0)
        self._counted = sorted((a for a in actions if a.fault.cycle is not None), key=lambda a: a.fault.cycle or 0)
        self._began: tuple[int, int] | None = None

    @property
    def left(self) -> int:
        """How many faults are still to come."""
        return len(self._timed) + len(self._counted)

    def begin(self, now_ns: int, cycle: int) -> None:
        """Start the clock, the segment being operational; further calls change nothing."""
        if self._began is None:
            self._began = now_ns, cycle

    def due(self, now_ns: int, cycle: int) -> list[Action]:
        """Return what is due at a time and a cycle and has not been returned yet; nothing before `begin`."""
        if self._began is None:
            return []
        elapsed_ns, cycles = now_ns - self._began[0], cycle - self._began[1]
        timed = [action for action in self._timed if round((action.fault.at_s or 0.0) * 1e9) <= elapsed_ns]
        counted = [action for action in self._counted if (action.fault.cycle or 0) <= cycles]
        del self._timed[: len(timed)]
        del self._counted[: len(counted)]
        return timed + counted

    def _number(self, place: int, fault: Fault) -> int:
        count = len(self._names)
        where = f"fault[{place}].{fault.kind}"
        if isinstance(fault, Cut) and fault.after > count:
            raise FaultScriptError(f"{where}.after: is {fault.after}, but there are {count} slaves")
        if not isinstance(fault, _SlaveFault):
            return -1
        slave = fault.slave
        if isinstance(slave, str):
            if slave not in self._names:
                raise FaultScriptError(f"{where}.slave: '{slave}' is no joint; there are {', '.join(self._names)}")
            return self._names.index(slave)
        if slave >= count:
            raise FaultScriptError(f"{where}.slave: is {slave}, but the {count} slaves are 0 to {count - 1}")
        return slave
