"""Faults of a simulated PLC, and when they happen.

[[fault]]
kind = "drop_connection"
at_s = 12.5       # seconds since the first client connected; or cycle = 12500
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sim_backend.errors import SimulationConfigError
from sim_backend.plc._variables import Alteration

if TYPE_CHECKING:
    from sim_backend.plc._plc import SimulatedPlc

NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
AxisReference = Annotated[int, Field(ge=0, strict=True)] | Annotated[str, Field(min_length=1, strict=True)]


class _Fault(BaseModel, ABC):
    model_config = ConfigDict(extra="forbid", frozen=True)

    at_s: NonNegative | None = None
    """Time since the first client connected [s], on the PLC's clock."""
    cycle: Annotated[int, Field(ge=0)] | None = None
    """Or the task's cycle, counted from there."""

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if (self.at_s is None) == (self.cycle is None):
            raise ValueError("give either at_s or cycle")
        return self

    @abstractmethod
    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:
        """Bring the fault about, at CLOCK_MONOTONIC `now_ns`."""

    def first_cycle(self, cycle_ns: int) -> int:
        """Cycle in which it is due."""
        return self.cycle if self.cycle is not None else round((self.at_s or 0.0) * 1e9 / cycle_ns)

    def check(self, axes: Sequence[str]) -> None:
        """Raise `SimulationConfigError` where it cannot be."""


class _AxisFault(_Fault):
    axis: AxisReference
    """Name of the joint, or its number from 0."""

    def number(self, axes: Sequence[str]) -> int:
        """Return the number of the axis; raises `SimulationConfigError`."""
        if isinstance(self.axis, int):
            if self.axis >= len(axes):
                raise SimulationConfigError(f"axis is {self.axis}, but the {len(axes)} axes are 0 to {len(axes) - 1}")
            return self.axis
        if self.axis not in axes:
            raise SimulationConfigError(f"axis: {self.axis!r} is no joint; there are {', '.join(axes)}")
        return list(axes).index(self.axis)

    def check(self, axes: Sequence[str]) -> None:
        self.number(axes)


class DropConnection(_Fault):
    """All connections are closed."""

    kind: Literal["drop_connection"]

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.drop_connections()


class RefuseRoutes(_Fault):
    """No client has a route any more: connections are closed as soon as they are open; or all have one again."""

    kind: Literal["refuse_routes"]
    refuse: bool = True

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.refuse_routes(self.refuse)


class LateReplies(_Fault):
    """The next packets are sent late, and those behind them wait."""

    kind: Literal["late_replies"]
    ms: NonNegative
    count: Count = 1

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.line.delay_ns, plc.line.delayed = round(self.ms * 1e6), self.count


class BatchReplies(_Fault):
    """For a time nothing is sent, then everything at once."""

    kind: Literal["batch_replies"]
    ms: NonNegative

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:
        plc.line.hold_until_ns = now_ns + round(self.ms * 1e6)


class FragmentReplies(_Fault):
    """From now on packets are sent in pieces; 0 bytes: whole again."""

    kind: Literal["fragment_replies"]
    bytes: Annotated[int, Field(ge=0)]
    gap_ms: NonNegative = 0.1

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.line.piece_bytes, plc.line.piece_gap_ns = self.bytes, round(self.gap_ms * 1e6)


class Silence(_Fault):
    """For a time requests are not answered and nothing is sent; the task goes on."""

    kind: Literal["silence"]
    ms: NonNegative

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:
        plc.line.silent_until_ns = now_ns + round(self.ms * 1e6)


class RingOverrun(_Fault):
    """Answers wait until the ring has gone round once and a quarter."""

    kind: Literal["ring_overrun"]

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:
        settings = plc.settings
        plc.line.hold_until_ns = now_ns + settings.cycle_ns * settings.block_samples * settings.blocks * 5 // 4


class Stop(_Fault):
    """The PLC program is stopped."""

    kind: Literal["stop"]

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.stop()


class Run(_Fault):
    """A stopped program goes on where it was, with its axes off until they are enabled anew."""

    kind: Literal["run"]

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.run()


class Restart(_Fault):
    """The program starts again, also a stopped one, after `down_s`: without handles and notifications, from cycle 0."""

    kind: Literal["restart"]
    down_s: NonNegative = 0.0

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.restart(self.down_s)


class ConfigMode(_Fault):
    """TwinCAT goes into config mode."""

    kind: Literal["config_mode"]

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.config_mode()


class RunMode(_Fault):
    """TwinCAT goes back into run mode; the program starts."""

    kind: Literal["run_mode"]

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.run_mode()


class OnlineChange(_Fault):
    """A changed program is loaded without a stop."""

    kind: Literal["online_change"]
    structure: str | None = None
    """Structure that is altered; None: nothing is altered, what was is undone."""
    field: str = ""
    """Its field; a new one is added at the end."""
    type: str | None = None
    """Elementary type that the field gets; None: it is removed."""
    keep_handles: bool = False
    """Whether handles stay good, or are answered with ADS error 0x711."""

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

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.online_change(self.alterations(), self.keep_handles)


class LoseNotifications(_Fault):
    """The next samples of notifications get lost."""

    kind: Literal["lose_notifications"]
    count: Count = 1

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.lose_notifications(self.count)


class ExceedTask(_Fault):
    """The next cycle takes so long that `cycles` after it cannot begin."""

    kind: Literal["exceed_task"]
    cycles: Count = 1

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.exceed_task(self.cycles)


class TornReads(_Fault):
    """The next reads of blocks find one half written over."""

    kind: Literal["torn_reads"]
    count: Count = 1

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.services.torn_reads = self.count


class ClockStep(_Fault):
    """The PLC's clock is set; the distributed clock stays."""

    kind: Literal["clock_step"]
    ms: Annotated[float, Field(ge=-1e12, le=1e12)]

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.clock.step(round(self.ms * 10_000.0))


class AxisFailure(_AxisFault):
    """An axis fails: it reports a fault and has no torque; or could work again, once the fault is reset."""

    kind: Literal["axis_fault"]
    active: bool = True

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.machine.failing[self.number([axis.joint for axis in plc.settings.axis])] = self.active


class AxisSilent(_AxisFault):
    """An axis delivers no values, and says so; or does again."""

    kind: Literal["axis_invalid"]
    active: bool = True

    def apply(self, plc: SimulatedPlc, now_ns: int) -> None:  # noqa: ARG002
        plc.machine.silent[self.number([axis.joint for axis in plc.settings.axis])] = self.active


Fault: TypeAlias = Annotated[
    DropConnection
    | RefuseRoutes
    | LateReplies
    | BatchReplies
    | FragmentReplies
    | Silence
    | RingOverrun
    | Stop
    | Run
    | Restart
    | ConfigMode
    | RunMode
    | OnlineChange
    | LoseNotifications
    | ExceedTask
    | TornReads
    | ClockStep
    | AxisFailure
    | AxisSilent,
    Field(discriminator="kind"),
]


class FaultSchedule:
    """The faults of a file in the order of their times.

    Parameters
    ----------
    faults : sequence of Fault
    axes : sequence of str
        Joints of the axes.
    cycle_ns : int
        Of the task [ns].

    Raises
    ------
    SimulationConfigError
        An axis that there is not.
    """

    def __init__(self, faults: Sequence[Fault], axes: Sequence[str], cycle_ns: int) -> None:
        for place, fault in enumerate(faults):
            try:
                fault.check(axes)
            except SimulationConfigError as error:
                raise SimulationConfigError(f"fault[{place}].{error}") from error
        self._left = sorted(((fault.first_cycle(cycle_ns), fault) for fault in faults), key=lambda each: each[0])
        self._began: int | None = None

    @property
    def left(self) -> int:
        """How many are still to come."""
        return len(self._left)

    def begin(self, cycle: int) -> None:
        """Start the clock with a cycle of the task; further calls change nothing."""
        if self._began is None:
            self._began = cycle

    def due(self, cycle: int) -> list[Fault]:
        """Return what is due by a cycle and has not been returned yet; nothing before `begin`."""
        if self._began is None:
            return []
        count = sum(1 for first, _ in self._left if first <= cycle - self._began)
        due = [fault for _, fault in self._left[:count]]
        del self._left[:count]
        return due
