"""The PLC program: counterpart of the function block that the layout describes."""

import numpy as np

from drivers.ads import layout
from rt_core.types import FloatArray, IntArray
from sim_backend.plc._machine import Machine
from sim_backend.plc._memory import Memory
from sim_backend.plc._ring import Ring, wrapped
from sim_backend.plc._setpoint_buffers import SetpointBuffers
from sim_backend.plc.settings import PlcSettings

BY_COMMAND, NO_HEARTBEAT, NO_POINTS, TOO_FAR, AXIS_FAULTY, NOT_ON, STOOD_STILL = range(1, 8)  # of REASONS
#: Status words of a drive: switched on disabled, operation enabled, fault.
_WORDS = {"off": 0x1250, "on": 0x1237, "fault": 0x1218}
#: Time-outs of enabling and of a stop [s].
_ENABLE_TIMEOUT_S, _STOP_TIMEOUT_S = 5.0, 2.0
#: Cycles without a set position in which moving axes continue as before.
_TOLERATED = 2


class Program:
    """One run of the program, identified by its start at PLC time `start_100ns`.

    `speed_limit` (n,) is the largest amount of the axes' set velocities, in their units a second.  `counter` samples
    have been written; `state` and `reason` are those of `drivers.ads.layout`.
    """

    def __init__(
        self, settings: PlcSettings, memory: Memory, machine: Machine, speed_limit: FloatArray, start_100ns: int
    ) -> None:
        self._settings, self._machine = settings, machine
        self.run = start_100ns
        self.counter = 0
        self.state, self.reason = layout.OFF, 0
        self.underruns = self.exceeded = 0
        self._cycle_s = settings.cycle_ns * 1e-9
        self._heartbeat_100ns = settings.heartbeat_ms * 10_000
        self._enable_cycles = round(_ENABLE_TIMEOUT_S / self._cycle_s)
        self._stop_cycles = round(_STOP_TIMEOUT_S / self._cycle_s)
        self._limit = speed_limit * self._cycle_s
        self._set = machine.measured.position.copy()  # set positions of this cycle, and the way to them
        self._step = np.zeros_like(self._set)
        self._moving = False
        self._armed = False  # the command has been "off" since the axes were last switched off
        self._since = 0  # cycles in the state
        self._silence = self._heartbeat_100ns  # time without a heartbeat
        self._stood = False  # the task paused longer than the heartbeat's time before this cycle
        self._heartbeat = 0
        self._gap = 0  # cycles without a set position
        self._share = self._share_step = 1.0  # remaining share of the speed at which a stop began
        self._buffers = SetpointBuffers(memory, f"{settings.variables}.{layout.SETPOINTS}", settings.sizes)
        self._time_100ns = start_100ns  # of the last cycle
        self.connect(memory)

    def connect(self, memory: Memory) -> None:
        """Switch to another memory, after an online change."""
        prefix, sizes = self._settings.variables, self._settings.sizes
        self._info = memory.array(f"{prefix}.{layout.INFO}")
        self._head = memory.array(f"{prefix}.{layout.HEAD}")
        self._command = memory.array(f"{prefix}.{layout.COMMAND}")
        self._names = set(self._head.dtype.names or ())
        self._ring = Ring(memory, prefix, sizes, self._settings.channels)
        self._buffers.connect(memory)
        self._cycles = memory.array("MAIN.nCycles")
        self._write_info()
        self._write_head()

    def cycle(self, time_100ns: int, dc_ns: int) -> None:
        enable = self._listen(time_100ns - self._time_100ns)
        self._buffers.take(self.run, self.counter)
        self._next_state(enable)
        self._move()
        machine = self._machine
        self._ring.append(self.counter, time_100ns, dc_ns, machine.measured, self._set, self._status())
        self.counter += 1
        self._time_100ns = time_100ns
        self._write_head()
        self._cycles[()] = self.counter

    def resume(self) -> None:
        """Continue after a stop of the task; axes that were on are off."""
        if self.state in (layout.ENABLING, layout.ENABLED, layout.STOPPING):
            self._switch_off(STOOD_STILL)

    def _listen(self, elapsed_100ns: int) -> bool:
        """Evaluate heartbeat and command; return whether the axes shall be enabled."""
        command = self._command
        self._stood = not 0 <= elapsed_100ns <= self._heartbeat_100ns
        if self._stood:  # earlier commands are obsolete
            self._silence, self._armed = self._heartbeat_100ns, False
        else:  # a stopped clock counts as one cycle
            self._silence += elapsed_100ns or self._settings.cycle_ns // 100
        if int(command["nStart"]) != self.run:
            self._armed = True
            return False
        heartbeat = int(command["nHeartbeat"])
        if heartbeat != self._heartbeat:
            self._heartbeat = heartbeat
            if not self._stood:
                self._silence = 0
        enable = int(command["nEnable"]) == 1
        if not enable:
            self._armed = True
        return enable

    def _next_state(self, enable: bool) -> None:
        self._since += 1
        alive = self._silence < self._heartbeat_100ns
        machine = self._machine
        faulty, enabled = bool(machine.faulty.any()), bool(machine.enabled.all())
        if self._stood and self.state in (layout.ENABLING, layout.ENABLED, layout.STOPPING):
            self._switch_off(STOOD_STILL)
        elif self.state in (layout.ENABLED, layout.STOPPING) and not machine.enabled.any():
            self._switch_off(AXIS_FAULTY)
        elif self.state in (layout.OFF, layout.FAULT):
            if enable and self._armed and alive:
                self._arm()
            elif self.state == layout.OFF and faulty and not enable:
                self.reason = AXIS_FAULTY
                self._enter(layout.FAULT)
            elif self.state == layout.FAULT and not faulty and not enable:
                self._enter(layout.OFF)
        elif self.state == layout.STOPPING:
            if (self._share <= 0.0 and machine.standing) or self._since > self._stop_cycles:
                self._enter(layout.FAULT if faulty else layout.OFF)
        elif self.state == layout.ENABLED and (faulty or not enabled):
            self._stop(AXIS_FAULTY)
        elif not enable:
            self._stop(BY_COMMAND)
        elif not alive:
            self._stop(NO_HEARTBEAT)
        elif self.state == layout.ENABLING:
            if enabled and not faulty:
                self._enter(layout.ENABLED)
            elif self._since > self._enable_cycles:
                self._stop(NOT_ON)

    def _enter(self, state: int) -> None:
        self.state, self._since = state, 0

    def _arm(self) -> None:
        """Start enabling; set positions written before are dropped."""
        self._armed = self._moving = False
        self._gap = 0
        self._buffers.forget()
        self._machine.reset()  # one pulse: a persistent fault returns
        self._enter(layout.ENABLING)

    def _switch_off(self, reason: int) -> None:
        """Switch off at once, until the command has been "off"."""
        self.reason = reason
        self._armed = self._moving = False
        self._enter(layout.FAULT if self._machine.faulty.any() else layout.OFF)

    def _stop(self, reason: int) -> None:
        """Start a controlled stop of all axes, along their present direction."""
        if not self._machine.enabled.any():  # while enabling
            self._switch_off(reason)
            return
        speed = float(np.max(np.abs(self._step) / self._limit, initial=0.0))
        cycles = speed * self._settings.stop_ms * 1e6 / self._settings.cycle_ns
        self._share, self._share_step = 1.0, 1.0 / max(cycles, 1.0)
        self.reason = reason
        self._enter(layout.STOPPING)

    def _move(self) -> None:
        """Update set positions and axis commands."""
        machine = self._machine
        if self.state == layout.ENABLED:
            self._follow()
        if self.state == layout.STOPPING:
            self._share = max(0.0, self._share - self._share_step)
            self._set = self._set + self._share * self._step
        if self.state != layout.ENABLED:
            # Disabled axes track the measured position, so that enabling does not jump.
            on = machine.enabled & (self.state in (layout.ENABLING, layout.STOPPING))
            self._set = np.where(on, self._set, machine.measured.position)
            self._step = np.where(on & (self.state == layout.STOPPING), self._step, 0.0)
        machine.target[:] = self._set
        machine.power = self.state in (layout.ENABLING, layout.ENABLED, layout.STOPPING)
        machine.follow = self.state in (layout.ENABLED, layout.STOPPING)

    def _follow(self) -> None:
        """Take the point of this cycle; without one hold, or stop if axes were moving."""
        point = self._buffers.point(self.counter)
        if point is None:
            if self._moving:
                self.underruns += 1
                self._gap += 1
                if self._gap > _TOLERATED:
                    self._stop(NO_POINTS)
                else:
                    self._set = self._set + self._step
            return
        step = point - self._set
        if not np.all(np.abs(step) <= self._limit):  # also for NaN
            self._stop(TOO_FAR)
            return
        self._step, self._moving, self._gap = step, bool(step.any()), 0
        self._set = point.copy()

    def _status(self) -> IntArray:
        machine = self._machine
        on = machine.enabled
        word = np.where(machine.faulty, _WORDS["fault"], np.where(on, _WORDS["on"], _WORDS["off"]))
        bits = np.where(machine.measured.valid, layout.AXIS_VALID, 0) + np.where(machine.faulty, layout.AXIS_FAULT, 0)
        status: IntArray = (word << 16) + bits + np.where(on, layout.AXIS_ENABLED, 0)
        return status

    def _write_head(self) -> None:
        values = {
            "nStart": self.run, "nSamples": self.counter, "nBlocks": self.counter // self._settings.block_samples,
            "nTime": self._time_100ns, "nState": self.state, "nReason": self.reason, "nUnderruns": self.underruns,
            "nRefused": self._buffers.refused, "nSequence": self._buffers.sequence, "nExceeded": self.exceeded,
        }  # fmt: skip
        head = self._head
        for name, value in values.items():
            if name in self._names:
                head[name] = wrapped(value, head.dtype[name])

    def _write_info(self) -> None:
        settings = self._settings
        values = {
            "nStart": self.run, "nVersion": layout.VERSION, "nAxes": settings.sizes.axes,
            "nBlockSamples": settings.block_samples, "nBlocks": settings.blocks, "nSetpoints": settings.setpoints,
            "nChannels": sum(1 << layout.CHANNEL_BITS[name] for name in set(settings.channels)),
            "nCycleNs": settings.cycle_ns, "nHeartbeatMs": settings.heartbeat_ms,
        }  # fmt: skip
        info = self._info
        for name, value in values.items():
            if name in (info.dtype.names or ()):
                info[name] = wrapped(value, info.dtype[name])
        info["aNames"] = [(axis.name or axis.joint).encode() for axis in settings.axis]
