"""A simulated PLC, sans I/O: fed with times and with bytes of its clients."""

from collections.abc import Sequence

from drivers.ads.layout import RING
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from sim_backend.arm.trajectory import MotionLimits
from sim_backend.faults import FaultSchedule
from sim_backend.plc import _ams as ams
from sim_backend.plc import _faults as faults
from sim_backend.plc._codes import AdsError, Code, State
from sim_backend.plc._device import SYSTEM_PORT, Device
from sim_backend.plc._machine import Machine
from sim_backend.plc._memory import Memory
from sim_backend.plc._outlet import LineFaults
from sim_backend.plc._program import Program
from sim_backend.plc._services import Services
from sim_backend.plc._session import Session
from sim_backend.plc._symbols import SymbolTable
from sim_backend.plc._variables import INITIAL, REFERENCES, Alteration, declare
from sim_backend.plc.settings import PlcSettings

#: From 1601-01-01 to 1970-01-01 [100 ns], and from 1970-01-01 to 2000-01-01 [ns], both UTC.
EPOCH_1601_100NS = 116_444_736_000_000_000
EPOCH_2000_NS = 946_684_800_000_000_000


class PlcClock:
    """Grid of the cycles, of `cycle_ns`, a whole number of 100 ns.

    PLC time counts 100 ns since 1601, the distributed clock ns since 2000. The first cycle is at CLOCK_MONOTONIC
    `now_ns`, when the PLC's clock shows `wall_ns` [ns since 1970]; that drifts by `ppm` relative to the host's.
    """

    def __init__(self, cycle_ns: int, now_ns: int, wall_ns: int, ppm: float = 0.0) -> None:
        self._cycle_ns = cycle_ns
        self._start_ns = now_ns
        self._rate_ppb = round(ppm * 1000.0)
        # On the grid of its own cycles, as a task driven by the distributed clock is.
        first_ns = wall_ns // cycle_ns * cycle_ns
        self._time_100ns = first_ns // 100 + EPOCH_1601_100NS
        self._dc_ns = first_ns - EPOCH_2000_NS

    def due_ns(self, cycle: int) -> int:
        """Return CLOCK_MONOTONIC at which a cycle begins [ns]."""
        return self._start_ns + cycle * self._cycle_ns * 1_000_000_000 // (1_000_000_000 + self._rate_ppb)

    def time_100ns(self, cycle: int) -> int:
        """Return the time of a cycle on the PLC's clock [100 ns since 1601-01-01 UTC]."""
        return self._time_100ns + cycle * self._cycle_ns // 100

    def dc_ns(self, cycle: int) -> int:
        """Return the time of a cycle on the distributed clock [ns since 2000-01-01 UTC]."""
        return self._dc_ns + cycle * self._cycle_ns

    def step(self, amount_100ns: int) -> None:
        """Shift the PLC's clock, as time synchronisation does; the distributed clock stays."""
        self._time_100ns += amount_100ns


class SimulatedPlc:
    """A controller with one PLC runtime and its machine.

    The first cycle begins at CLOCK_MONOTONIC `now_ns` [ns], when PLC time is `wall_ns` [ns since 1970]; the `schedule`
    of faults starts with the first connection.

    `line` are the faults of the line to the clients, whose open connections are `sessions`; with `refusing` no client
    has a route.  `services` are those of the runtime, `program` is the present run.  `next_cycle` counts cycles without
    the program too.
    """

    def __init__(
        self, settings: PlcSettings, model: RobotModel, machine: Machine, schedule: FaultSchedule[faults.Fault],
        now_ns: int, wall_ns: int,
    ) -> None:  # fmt: skip
        self.settings, self.model, self.machine = settings, model, machine
        self._schedule = schedule
        self.net_id = ams.net_id(settings.net_id)
        self.clock = PlcClock(settings.cycle_ns, now_ns, wall_ns, settings.clock_ppm)
        self.line = LineFaults()
        self.sessions: list[Session] = []
        self.refusing = False
        self.next_cycle = 0
        self._routes = None if settings.routes is None else set(map(ams.net_id, settings.routes))
        self._connections = 0
        self._system, self._runtime = State.RUN, State.RUN
        self._alterations: tuple[Alteration, ...] = ()
        self._resume_cycle: int | None = None
        self._exceeding = self._missing = 0  # cycles that the next one takes too long; that do not begin
        self._speed_limit: FloatArray = machine.axes.speed(settings.max_speed * MotionLimits.of(model).velocity)
        self.services = Services(self._memory(), lambda: (self._runtime, 0))
        self._devices: dict[int, Device] = {
            SYSTEM_PORT: Device("TwinCAT System", lambda: (self._system, 0), self._control_system),
            settings.port: Device("Plc30 App", lambda: (self._runtime, 0), self._control_runtime, self.services),
        }
        self.program = self._start()

    def due_ns(self) -> int:
        """CLOCK_MONOTONIC of the next cycle [ns]."""
        return self.clock.due_ns(self.next_cycle)

    def advance(self, now_ns: int) -> int:
        """Run the cycles due by CLOCK_MONOTONIC `now_ns`; return their number; raises `SimulationDivergedError`."""
        first = self.next_cycle
        while self.due_ns() <= now_ns:
            for fault in self._schedule.due(self.next_cycle) if self._schedule.left else ():
                self.apply(fault, now_ns)
            self._cycle(now_ns)
        return self.next_cycle - first

    def connect(self, host: str = "") -> Session:
        """Return the session of a new client at a host, closed if no client has a route."""
        self._schedule.begin(self.next_cycle)
        if self.settings.one_connection_per_host:
            for older in [each for each in self.sessions if each.host == host]:
                self.disconnect(older)
        session = Session(self, self._connections, host)
        self._connections += 1
        session.closed = self.refusing
        if not session.closed:
            self.sessions.append(session)
        return session

    def disconnect(self, session: Session) -> None:
        session.closed = True
        if session in self.sessions:
            self.sessions.remove(session)

    def device(self, port: int) -> Device | None:
        if port == self.settings.port and (self._system != State.RUN or self._resume_cycle is not None):
            return None
        return self._devices.get(port)

    def routed(self, net_id: bytes) -> bool:
        """Return whether a client's net id has a route."""
        # A client that got its address from this router has the net id of the PLC.
        known = self._routes is None or net_id == self.net_id or net_id in self._routes
        return known and not self.refusing

    def add_route(self, net_id: bytes) -> None:
        if self._routes is not None:
            self._routes.add(net_id)

    def apply(self, fault: faults.Fault, now_ns: int) -> None:
        """Apply a fault, at CLOCK_MONOTONIC `now_ns`."""
        line, settings = self.line, self.settings
        match fault:
            case faults.DropConnection():
                self.drop_connections()
            case faults.RefuseRoutes():
                self.refuse_routes(fault.refuse)
            case faults.LateReplies():
                line.delay_ns, line.delayed = round(fault.ms * 1e6), fault.count
            case faults.BatchReplies():
                line.hold_until_ns = now_ns + round(fault.ms * 1e6)
            case faults.FragmentReplies():
                line.piece_bytes, line.piece_gap_ns = fault.bytes, round(fault.gap_ms * 1e6)
            case faults.Silence():
                line.silent_until_ns = now_ns + round(fault.ms * 1e6)
            case faults.RingOverrun():
                line.hold_until_ns = now_ns + settings.cycle_ns * settings.block_samples * settings.blocks * 5 // 4
            case faults.Stop():
                self.stop()
            case faults.Run():
                self.run()
            case faults.Restart():
                self.restart(fault.down_s)
            case faults.ConfigMode():
                self.config_mode()
            case faults.RunMode():
                self.run_mode()
            case faults.OnlineChange():
                self.online_change(fault.alterations(), fault.keep_handles)
            case faults.LoseNotifications():
                self.lose_notifications(fault.count)
            case faults.ExceedTask():
                self.exceed_task(fault.cycles)
            case faults.TornReads():
                self.services.torn_reads = fault.count
            case faults.ClockStep():
                self.clock.step(round(fault.ms * 10_000.0))
            case faults.AxisFailure() | faults.AxisSilent():
                flags = self.machine.failing if isinstance(fault, faults.AxisFailure) else self.machine.silent
                flags[fault.number([axis.joint for axis in settings.axis])] = fault.active

    def drop_connections(self) -> None:
        for session in list(self.sessions):
            self.disconnect(session)

    def refuse_routes(self, refuse: bool = True) -> None:
        """Refuse all clients and close their connections, or admit them again."""
        self.refusing = refuse
        if refuse:
            self.drop_connections()

    def stop(self) -> None:
        """Stop the PLC program; its variables stay readable."""
        if self._runtime == State.RUN:
            self._runtime = State.STOP
            self.machine.switch_off()

    def run(self) -> None:
        """Continue a stopped program; its axes stay off until they are enabled again."""
        if self._runtime != State.RUN:
            self._runtime = State.RUN
            self.program.resume()

    def restart(self, down_s: float = 0.0) -> None:
        """Restart the program: initial values, no handles or notifications; no port for `down_s` [s] before."""
        self._runtime = State.RUN
        self._exceeding = self._missing = 0
        self.machine.switch_off()
        self.services.handles.clear()
        for session in self.sessions:
            session.end_notifications()
        if down_s > 0.0:
            self._resume_cycle = self.next_cycle + max(1, round(down_s * 1e9 / self.settings.cycle_ns))
        else:
            self.program = self._start()

    def config_mode(self) -> None:
        """Put TwinCAT into config mode, without a runtime."""
        if self._system == State.RUN:
            self._system = State.CONFIG
            self.machine.switch_off()

    def run_mode(self) -> None:
        """Put TwinCAT back into run mode; the program starts."""
        if self._system != State.RUN:
            self._system = State.RUN
            self.restart()

    def online_change(self, alterations: Sequence[Alteration] = (), keep_handles: bool = False) -> None:
        """Load a program with all its `alterations`, without a stop; handles stay valid or get error 0x711."""
        before, self._alterations = self.services.memory, tuple(alterations)
        after = Memory(self._table())
        after.take_over(before)
        self._use(after)
        self.services.version = self.services.version % 255 + 1
        self.services.handles.change(after.table, keep_handles)
        self.program.connect(after)

    def lose_notifications(self, count: int) -> None:
        """Lose the next samples of all notifications."""
        for session in self.sessions:
            session.lose_samples(count)

    def exceed_task(self, cycles: int) -> None:
        """Let the next cycle of the task overrun the `cycles` after it."""
        self._exceeding += cycles

    @property
    def states(self) -> tuple[int, int]:
        """ADS states of TwinCAT and of the runtime."""
        return self._system, self._runtime

    def _cycle(self, now_ns: int) -> None:
        cycle = self.next_cycle
        if cycle:
            self.machine.advance(self.settings.cycle_ns * 1e-9)
        self.next_cycle = cycle + 1
        if self._resume_cycle is not None and cycle >= self._resume_cycle:
            self._resume_cycle = None
            self.program = self._start(cycle)
        if self._system != State.RUN or self._resume_cycle is not None:
            return
        time_100ns = self.clock.time_100ns(cycle)
        if self._runtime == State.RUN:
            self._run_task(time_100ns, self.clock.dc_ns(cycle) if self.settings.dc else 0)
        for session in self.sessions:
            session.notify(cycle, time_100ns, now_ns)

    def _run_task(self, time_100ns: int, dc_ns: int) -> None:
        """Run the program, unless an earlier cycle overruns."""
        if self._missing:
            self._missing -= 1
            return
        self.program.cycle(time_100ns, dc_ns)
        if self._exceeding:
            self._missing, self._exceeding = self._exceeding, 0
            self.program.exceeded += 1  # reported by the next cycle

    def _table(self) -> SymbolTable:
        return SymbolTable(declare(self.settings.variables, self.settings.sizes, self._alterations))

    def _memory(self) -> Memory:
        memory = Memory(self._table())
        for name, value in INITIAL.items():
            memory.array(name)[...] = value
        for name, target in REFERENCES.items():
            memory.array(name)[...] = memory.place(target).offset
        return memory

    def _use(self, memory: Memory) -> None:
        self.services.memory = memory
        self.services.ring = memory.place(f"{self.settings.variables}.{RING}")

    def _start(self, cycle: int | None = None) -> Program:
        self._use(self._memory())
        start = self.clock.time_100ns(self.next_cycle if cycle is None else cycle)
        return Program(self.settings, self.services.memory, self.machine, self._speed_limit, start)

    def _control_system(self, state: int) -> None:
        if state == State.RECONFIG:
            self.config_mode()
        elif state == State.RESET:
            if self._system == State.RUN:
                self.restart()
            else:
                self.run_mode()
        else:
            raise AdsError(Code.INVALID_PARAMETER)

    def _control_runtime(self, state: int) -> None:
        if state == State.RUN:
            self.run()
        elif state == State.STOP:
            self.stop()
        elif state == State.RESET:
            self.restart()
        else:
            raise AdsError(Code.INVALID_PARAMETER)
