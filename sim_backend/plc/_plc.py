"""A simulated PLC, sans I/O: fed with times and with bytes of its clients.

`advance` runs all cycles of the task that are due, in order; `connect` returns what answers a client.
"""

from __future__ import annotations

from collections.abc import Sequence

from drivers.ads.link.layout import RING
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from sim_backend.arm.trajectory import MotionLimits
from sim_backend.plc import _ams as ams
from sim_backend.plc._clock import PlcClock
from sim_backend.plc._codes import AdsError, Code, State
from sim_backend.plc._device import SYSTEM_PORT, Device
from sim_backend.plc._faults import FaultSchedule
from sim_backend.plc._machine import Machine
from sim_backend.plc._memory import Memory
from sim_backend.plc._outlet import LineFaults
from sim_backend.plc._program import Program
from sim_backend.plc._services import Services
from sim_backend.plc._session import Session
from sim_backend.plc._symbols import SymbolTable
from sim_backend.plc._variables import INITIAL, Alteration, declare
from sim_backend.plc.settings import PlcSettings


class SimulatedPlc:
    """A controller with one PLC runtime, and the machine that it moves.

    Parameters
    ----------
    settings : PlcSettings
    model : RobotModel
    machine : Machine
    faults : FaultSchedule
        Its clock starts with the first connection.
    now_ns : int
        CLOCK_MONOTONIC at which the first cycle begins [ns].
    wall_ns : int
        Time of the PLC's clock then [ns since 1970].

    Attributes
    ----------
    settings, model, machine, faults : as given
    clock : PlcClock
    net_id : bytes
    line : LineFaults
        How answers get to the clients.
    services : Services
        Of the runtime.
    program : Program
        Its present run.
    next_cycle : int
        Of the task, on the grid; those in which the program did not run count too.
    sessions : list of Session
        Connections that are open.
    refusing : bool
        No client has a route.
    """

    def __init__(
        self,
        settings: PlcSettings,
        model: RobotModel,
        machine: Machine,
        faults: FaultSchedule,
        now_ns: int,
        wall_ns: int,
    ) -> None:
        self.settings, self.model, self.machine, self.faults = settings, model, machine, faults
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
        """Run the cycles that are due by CLOCK_MONOTONIC `now_ns`; returns how many.

        Raises
        ------
        SimulationDivergedError
        """
        first = self.next_cycle
        while self.due_ns() <= now_ns:
            for fault in self.faults.due(self.next_cycle) if self.faults.left else ():
                fault.apply(self, now_ns)
            self._cycle(now_ns)
        return self.next_cycle - first

    def connect(self, host: str = "") -> Session:
        """Return what answers a new client at a host; already closed where no client has a route."""
        self.faults.begin(self.next_cycle)
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
        """Forget a client, with its notifications."""
        session.closed = True
        if session in self.sessions:
            self.sessions.remove(session)

    def device(self, port: int) -> Device | None:
        """Return what is behind an AMS port; None if nothing is."""
        if port == self.settings.port and (self._system != State.RUN or self._resume_cycle is not None):
            return None
        return self._devices.get(port)

    def routed(self, net_id: bytes) -> bool:
        """Whether a client's net id has a route."""
        # A client that got its address from this router has the net id of the PLC.
        known = self._routes is None or net_id == self.net_id or net_id in self._routes
        return known and not self.refusing

    def add_route(self, net_id: bytes) -> None:
        """Let a client in."""
        if self._routes is not None:
            self._routes.add(net_id)

    # What may happen to it.

    def drop_connections(self) -> None:
        """Close all connections."""
        for session in list(self.sessions):
            self.disconnect(session)

    def refuse_routes(self, refuse: bool = True) -> None:
        """Let no client in, and close what is open; or let them in again."""
        self.refusing = refuse
        if refuse:
            self.drop_connections()

    def stop(self) -> None:
        """Stop the PLC program; its variables stay readable."""
        if self._runtime == State.RUN:
            self._runtime = State.STOP
            self.machine.let_go()

    def run(self) -> None:
        """Let a stopped program go on where it was; its axes are off, and stay so until they are enabled anew."""
        if self._runtime != State.RUN:
            self._runtime = State.RUN
            self.program.resume()

    def restart(self, down_s: float = 0.0) -> None:
        """Start the program again, also a stopped one: variables at their first values, no handles or notifications.

        For `down_s` [s] before, the runtime's port is not there.
        """
        self._runtime = State.RUN
        self._exceeding = self._missing = 0
        self.machine.let_go()
        self.services.handles.clear()
        for session in self.sessions:
            session.end_notifications()
        if down_s > 0.0:
            self._resume_cycle = self.next_cycle + max(1, round(down_s * 1e9 / self.settings.cycle_ns))
        else:
            self.program = self._start()

    def config_mode(self) -> None:
        """Put TwinCAT into config mode, in which there is no runtime."""
        if self._system == State.RUN:
            self._system = State.CONFIG
            self.machine.let_go()

    def run_mode(self) -> None:
        """Put TwinCAT back into run mode; the program starts."""
        if self._system != State.RUN:
            self._system = State.RUN
            self.restart()

    def online_change(self, alterations: Sequence[Alteration] = (), keep_handles: bool = False) -> None:
        """Load a changed program without a stop.

        Parameters
        ----------
        alterations : sequence of Alteration
            All differences from the layout; none: it is as at first.
        keep_handles : bool
            Whether handles lead to where their variables are now, or are answered with ADS error 0x711.
        """
        before, self._alterations = self.services.memory, tuple(alterations)
        after = Memory(self._table())
        after.take_over(before)
        self._use(after)
        self.services.version = self.services.version % 255 + 1
        self.services.handles.change(after.table, keep_handles)
        self.program.connect(after)

    def lose_notifications(self, count: int) -> None:
        """Let the next samples of all notifications get lost."""
        for session in self.sessions:
            session.lose_samples(count)

    def exceed_task(self, cycles: int) -> None:
        """Let the next cycle of the task take so long that the `cycles` after it cannot begin."""
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
        """Run the program, unless a cycle before this one is still running."""
        if self._missing:
            self._missing -= 1
            return
        self.program.cycle(time_100ns, dc_ns)
        if self._exceeding:
            self._missing, self._exceeding = self._exceeding, 0
            self.program.exceeded += 1  # which the next cycle says

    def _table(self) -> SymbolTable:
        return SymbolTable(declare(self.settings.variables, self.settings.sizes, self._alterations))

    def _memory(self) -> Memory:
        memory = Memory(self._table())
        for name, value in INITIAL.items():
            memory.array(name)[...] = value
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
