"""Faults of a simulated PLC, as entries of its file (`sim_backend.plc.settings`).

[[fault]]
kind = "drop_connection"
at_s = 12.5       # seconds of the PLC's clock since the first client connected; or cycle = 12500
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from drivers.files.table import NonNegative
from sim_backend.errors import SimulationConfigError
from sim_backend.faults import Count, Reference, ScheduledFault
from sim_backend.plc._variables import Alteration


class _AxisFault(ScheduledFault):
    axis: Reference  # name of the joint, or its number from 0

    def number(self, axes: Sequence[str]) -> int:
        """Return the number of the axis; raises `SimulationConfigError`."""
        if isinstance(self.axis, int):
            if self.axis >= len(axes):
                raise SimulationConfigError(f"axis is {self.axis}, but the {len(axes)} axes are 0 to {len(axes) - 1}")
            return self.axis
        if self.axis not in axes:
            raise SimulationConfigError(f"axis: {self.axis!r} is not a joint; there are {', '.join(axes)}")
        return list(axes).index(self.axis)


class DropConnection(ScheduledFault):
    """All connections are closed."""

    kind: Literal["drop_connection"]


class RefuseRoutes(ScheduledFault):
    """No client has a route, so that connections are closed at once; or all have one again."""

    kind: Literal["refuse_routes"]
    refuse: bool = True


class LateReplies(ScheduledFault):
    """The next packets are sent late, and those behind them wait."""

    kind: Literal["late_replies"]
    ms: NonNegative
    count: Count = 1


class BatchReplies(ScheduledFault):
    """For a time nothing is sent, then everything at once."""

    kind: Literal["batch_replies"]
    ms: NonNegative


class FragmentReplies(ScheduledFault):
    """From now on packets are sent in pieces; 0 bytes: whole again."""

    kind: Literal["fragment_replies"]
    bytes: Annotated[int, Field(ge=0)]
    gap_ms: NonNegative = 0.1


class Silence(ScheduledFault):
    """For a time the PLC neither answers nor sends; its task continues."""

    kind: Literal["silence"]
    ms: NonNegative


class RingOverrun(ScheduledFault):
    """Answers wait for one and a quarter turns of the ring."""

    kind: Literal["ring_overrun"]


class Stop(ScheduledFault):
    """The PLC program is stopped."""

    kind: Literal["stop"]


class Run(ScheduledFault):
    """A stopped program continues, with its axes off until they are enabled again."""

    kind: Literal["run"]


class Restart(ScheduledFault):
    """The program restarts after `down_s`, also a stopped one, without handles and notifications."""

    kind: Literal["restart"]
    down_s: NonNegative = 0.0


class ConfigMode(ScheduledFault):
    """TwinCAT goes into config mode."""

    kind: Literal["config_mode"]


class RunMode(ScheduledFault):
    """TwinCAT goes back into run mode; the program starts."""

    kind: Literal["run_mode"]


class OnlineChange(ScheduledFault):
    """A changed program is loaded without a stop."""

    kind: Literal["online_change"]
    structure: str | None = None  # structure to alter; None: undo all alterations
    field: str = ""  # its field; a new one is added at the end
    type: str | None = None  # elementary type of the field; None: remove it
    keep_handles: bool = False  # whether handles stay valid, or get ADS error 0x711

    @model_validator(mode="after")
    def _alterable(self) -> Self:
        try:
            self.alterations()
        except SimulationConfigError as error:
            raise ValueError(str(error)) from error
        return self

    def alterations(self) -> list[Alteration]:
        """Return what is altered; raises `SimulationConfigError`."""
        return [] if self.structure is None else [Alteration(self.structure, self.field, self.type)]


class LoseNotifications(ScheduledFault):
    """The next samples of notifications are lost."""

    kind: Literal["lose_notifications"]
    count: Count = 1


class ExceedTask(ScheduledFault):
    """The next cycle takes so long that `cycles` after it cannot begin."""

    kind: Literal["exceed_task"]
    cycles: Count = 1


class TornReads(ScheduledFault):
    """The next reads of blocks return a half-overwritten one."""

    kind: Literal["torn_reads"]
    count: Count = 1


class ClockStep(ScheduledFault):
    """The PLC's clock is set; the distributed clock stays."""

    kind: Literal["clock_step"]
    ms: Annotated[float, Field(ge=-1e12, le=1e12)]


class AxisFailure(_AxisFault):
    """An axis reports a fault and has no torque; or its cause is gone, and the fault can be reset."""

    kind: Literal["axis_fault"]
    active: bool = True


class AxisSilent(_AxisFault):
    """An axis delivers no values and reports them invalid; or delivers them again."""

    kind: Literal["axis_invalid"]
    active: bool = True


Fault: TypeAlias = Annotated[
    DropConnection | RefuseRoutes | LateReplies | BatchReplies | FragmentReplies | Silence | RingOverrun | Stop | Run
    | Restart | ConfigMode | RunMode | OnlineChange | LoseNotifications | ExceedTask | TornReads | ClockStep
    | AxisFailure | AxisSilent,
    Field(discriminator="kind"),
]  # fmt: skip


def check_axes(faults: Sequence[Fault], axes: Sequence[str]) -> None:
    """Raise `SimulationConfigError` where a fault is of an axis that does not exist; `axes` are their joints."""
    for place, fault in enumerate(faults):
        if isinstance(fault, _AxisFault):
            try:
                fault.number(axes)
            except SimulationConfigError as error:
                raise SimulationConfigError(f"fault[{place}].{error}") from error
