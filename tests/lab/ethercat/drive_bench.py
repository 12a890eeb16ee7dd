"""A test bench for one drive: an ideal motor that does what it is told, and a master's hand on the objects."""

from __future__ import annotations

from sim_backend.canopen.data_types import DataType
from sim_backend.canopen.dictionary import Access, Entry, ObjectCode, ObjectEntry
from sim_backend.drive._cia402 import State
from sim_backend.drive.drive import Cia402Drive, Demand, DriveOptions, Emergency, Feedback
from sim_backend.drive.modes import CSP, CST, CSV
from sim_backend.ethercat._communication import build_dictionary
from sim_backend.ethercat._profile import load_profile

PERIOD_S = 1e-3
#: States by the statusword under the masks of IEC 61800-7-201, table "Device state bits".
STATES = {
    (0x4F, 0x00): State.NOT_READY, (0x4F, 0x40): State.SWITCH_ON_DISABLED, (0x6F, 0x21): State.READY,
    (0x6F, 0x23): State.SWITCHED_ON, (0x6F, 0x27): State.ENABLED, (0x6F, 0x07): State.QUICK_STOP,
    (0x4F, 0x0F): State.FAULT_REACTION, (0x4F, 0x08): State.FAULT,
}  # fmt: skip


class Bench:
    """A generic servo with an ideal motor, which may be blocked, or read a speed that it does not have."""

    def __init__(self, position_limits: tuple[int, int] | None = None, **options: object) -> None:
        self.dictionary = build_dictionary(load_profile("generic_servo"))
        if position_limits is not None:
            limits = enumerate(position_limits, 1)
            entries = {k: Entry(0x607D, k, "limit", DataType.INTEGER32, 32, Access.READ, value) for k, value in limits}
            self.dictionary.add(ObjectEntry(0x607D, "limits", ObjectCode.ARRAY, DataType.INTEGER32, entries))
        settings = DriveOptions(units_per_motor_rev=1_048_576.0, **options)
        self.drive = Cia402Drive(self.dictionary, settings)
        self.position, self.velocity, self.temperature = 1000.0, 0.0, 25.0
        self.blocked = self.limited = False
        self.false_speed: float | None = None
        self.online = True
        self.demand: Demand | None = None
        self.demands: list[Demand] = []
        self.emergencies: list[Emergency] = []

    def get(self, index: int, subindex: int = 0) -> int:
        return int(self.dictionary.entry(index, subindex).value)

    def set(self, index: int, value: int, subindex: int = 0) -> None:
        """As process data do: straight into the entry."""
        self.dictionary.entry(index, subindex).value = value

    def run(self, cycles: int = 1, fresh: bool = True) -> State:
        for _ in range(cycles):
            self._move()
            speed = self.velocity if self.false_speed is None else self.false_speed
            feedback = Feedback(round(self.position), speed, self.limited, self.temperature)
            self.demand = self.drive.cycle(feedback, PERIOD_S, self.online, fresh)
            self.demands.append(self.demand)
            self.emergencies += self.drive.take_emergencies()
        return self.drive.state

    def _move(self) -> None:
        demand, before = self.demand, self.position
        if demand is None or demand.brake or self.blocked:
            self.velocity = 0.0
        elif demand.mode == CSP:
            self.position = demand.target
            self.velocity = (self.position - before) / PERIOD_S
        elif demand.mode == CSV:
            self.velocity = demand.target
            self.position += self.velocity * PERIOD_S
        elif demand.mode == CST:
            self.velocity += demand.target
            self.position += self.velocity * PERIOD_S
        else:  # free: keeps its speed
            self.position += self.velocity * PERIOD_S

    def command(self, controlword: int, cycles: int = 1) -> State:
        self.set(0x6040, controlword)
        return self.run(cycles)

    def enable(self, mode: int = CSP) -> Bench:
        """Walk to "Operation enabled" and wait for the brake."""
        self.set(0x6060, mode)
        self.run(40)
        for controlword in (0x06, 0x07, 0x0F):
            self.set(0x607A, round(self.position))
            self.command(controlword)
        self.run(40)
        assert self.drive.state is State.ENABLED
        assert self.bit(12)
        return self

    def ramp(self, speed: float, cycles: int) -> None:
        """Let the set position move at a constant speed [units/s]."""
        start = self.get(0x607A)
        for k in range(1, cycles + 1):
            self.set(0x607A, round(start + speed * PERIOD_S * k))
            self.run()

    def bit(self, number: int) -> bool:
        return bool(self.get(0x6041) >> number & 1)

    def shown(self) -> State:
        """State that the statusword shows."""
        word = self.get(0x6041)
        (state,) = {state for (mask, value), state in STATES.items() if word & mask == value}
        return state
