"""Faults of a simulated segment, as entries of its file (`sim_backend.ethercat.settings`).

    [[fault]]
    kind = "cut"
    at_s = 12.5       # seconds since the segment was operational; or cycle = 12500
    after = 3

Slaves are given by the name of their joint, or by their number along the cable, from 0.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from sim_backend.errors import SimulationConfigError
from sim_backend.faults import Count, Reference, ScheduledFault

Code = Annotated[int, Field(ge=1, le=0xFFFF)]


class FaultScriptError(SimulationConfigError):
    """A fault of a slave or cable that does not exist; names entry and key."""


class _SlaveFault(ScheduledFault):
    slave: Reference


class LostFrame(ScheduledFault):
    """The next frames are lost, on their way to the slaves or back."""

    kind: Literal["lost_frame"]
    count: Count = 1
    after: Literal["master", "slaves"] = "master"
    """Last to have them: the master, or the slaves, which process them."""


class Cut(ScheduledFault):
    """The cable breaks behind the first `after` slaves."""

    kind: Literal["cut"]
    after: Annotated[int, Field(ge=0)]


class Mend(ScheduledFault):
    """All cables are plugged in again."""

    kind: Literal["mend"]


class PowerOff(_SlaveFault):
    """A slave loses its power: nothing passes it, its motor has no torque, its brake closes."""

    kind: Literal["power_off"]


class PowerOn(_SlaveFault):
    """A slave has power again, and starts."""

    kind: Literal["power_on"]


class WorkingCounterDrop(_SlaveFault):
    """A slave forwards the next frames without processing them."""

    kind: Literal["wkc_drop"]
    frames: Count = 1


class AlError(_SlaveFault):
    """A slave falls to SAFEOP with an AL status code."""

    kind: Literal["al_error"]
    code: Code


class EmergencyMessage(_SlaveFault):
    """A slave sends an emergency message; its drive goes on."""

    kind: Literal["emergency"]
    code: Code


class StuckEncoder(_SlaveFault):
    """A drive's encoder repeats its last reading, or reads again."""

    kind: Literal["stuck_encoder"]
    stuck: bool = True


class EncoderJump(_SlaveFault):
    """A drive's encoder reading jumps, for good."""

    kind: Literal["encoder_jump"]
    counts: int


class ClockDrift(_SlaveFault):
    """A slave's clock runs fast, or slow where `ppm` is negative."""

    kind: Literal["clock_drift"]
    ppm: Annotated[float, Field(ge=-1000.0, le=1000.0)]


class ClockStep(_SlaveFault):
    """A slave's clock jumps."""

    kind: Literal["clock_step"]
    ns: int


class SlowReply(ScheduledFault):
    """The next frames come back late."""

    kind: Literal["slow_reply"]
    ns: Count
    frames: Count = 1


class RefuseOp(_SlaveFault):
    """A slave does not go to OP any more, or does again; one that is there stays."""

    kind: Literal["refuse_op"]
    refuse: bool = True
    code: Code = 0x001E
    """AL status code; by default "invalid input configuration"."""


class DriveFault(_SlaveFault):
    """A drive trips with an error code of its own."""

    kind: Literal["drive_fault"]
    code: Code


class SafeTorqueOff(_SlaveFault):
    """A drive's safe-torque-off input is opened, or closed again."""

    kind: Literal["sto"]
    active: bool = True


class Mains(_SlaveFault):
    """The power for a drive's motor goes, or comes again."""

    kind: Literal["mains"]
    on: bool = False


Fault: TypeAlias = Annotated[
    LostFrame | Cut | Mend | PowerOff | PowerOn | WorkingCounterDrop | AlError | EmergencyMessage | StuckEncoder
    | EncoderJump | ClockDrift | ClockStep | SlowReply | RefuseOp | DriveFault | SafeTorqueOff | Mains,
    Field(discriminator="kind"),
]  # fmt: skip


def slave_number(fault: Fault, names: Sequence[str], place: int = 0) -> int:
    """Return a fault's slave along the cable, -1 for the segment; `FaultScriptError` names its `place`."""
    count, where = len(names), f"fault[{place}].{fault.kind}"
    if isinstance(fault, Cut) and fault.after > count:
        raise FaultScriptError(f"{where}.after: is {fault.after}, but there are {count} slaves")
    if not isinstance(fault, _SlaveFault):
        return -1
    slave = fault.slave
    if isinstance(slave, str):
        if slave not in names:
            raise FaultScriptError(f"{where}.slave: '{slave}' is not a joint; there are {', '.join(names)}")
        return list(names).index(slave)
    if slave >= count:
        raise FaultScriptError(f"{where}.slave: is {slave}, but the {count} slaves are 0 to {count - 1}")
    return slave
