"""ADS driver: frames from the ring buffer of a TwinCAT PLC, set positions to it."""

from collections import deque
from typing import Any

from drivers.ads._connection import Attached, attach
from drivers.ads._errors import MOVED, AdsError
from drivers.ads.axes.axis_group import AxisGroup
from drivers.ads.axes.setpoints import encode
from drivers.ads.config import AdsConfig
from drivers.ads.layout import REASONS
from drivers.ads.link.link import RUN, STATES, Link
from drivers.ads.ring.stream import SampleStream
from drivers.driver import (
    DriverClosedError,
    DriverConfigError,
    DriverError,
    DriverInfo,
    DriverTimeoutError,
    OpenedInWith,
)
from drivers.frame import JointFrame
from drivers.timing import now_ns, sleep_until
from rt_core.types import FloatArray

#: Time without a new cycle after which the PLC counts as stalled.
_STILL_NS = 300_000_000
#: Period of the checks for online changes, and of the state of a stalled PLC.
_LOOK_NS = 1_000_000_000
_STILL_LOOK_NS = 200_000_000
_FIRST_RETRY_NS = 50_000_000
#: Period of reading the head with notifications and without commands.
_HEAD_NS = 100_000_000
#: Time limit for the axes to stop on close.
_STOP_NS = 1_000_000_000


class AdsDriver(OpenedInWith):
    """An arm behind a TwinCAT PLC that runs `FB_Theta` (`deploy/twincat`).

    `read` does all the work: it fetches blocks of samples when they are due, writes heartbeat and set positions, and
    reconnects.  Only the thread that reads uses ADS.

    `seq` counts the cycles of the PLC from the first frame; each number has a frame or is counted as lost.  After a
    restart of the PLC program it continues with the cycles that passed meanwhile.  `t_bus_ns` is the distributed-clock
    time of the cycle if the PLC has one, otherwise the PLC's time; both since 1970.
    """

    def __init__(self, config: AdsConfig) -> None:
        self.config = config
        self._notified = config.transfer == "notification"
        self._label = f"ADS {config.target}"
        self._reset()

    def _reset(self) -> None:
        self._link = Link(self.config.target)
        self._reading = False  # since the first `read`
        self._attached: Attached | None = None
        self._due_ns = self._look_ns = 0
        self._heartbeat = 0
        self._problem = ""
        self._state = "running"
        self._outage_ns = 0  # its start; 0: none
        self._retry_ns = _FIRST_RETRY_NS
        self._reconnects = self._restarts = self._online_changes = 0
        self._recoveries: deque[dict[str, Any]] = deque(maxlen=10)

    # --- the protocol Driver

    def open(self) -> None:
        """Connect and check the PLC's variables; frames start with the block that is written at the first `read`.

        Raises `DriverConfigError`: a variable is missing or declared otherwise, or axes or lead do not fit the PLC;
        `DriverConnectionError`: no connection, no route, no PLC, not in run mode, or its program does not count cycles;
        `DriverError`: it is open already.
        """
        self._require_closed()
        self._reset()
        try:
            self._attached = attached = attach(self._link, self.config)
            cycle_ns = attached.info.cycle_ns
            self._stream = SampleStream(cycle_ns, attached.dc)
            self._axis_group = AxisGroup(self.config, attached.scaling, attached.places, attached.sizes, cycle_ns)
            self._begin(attached, restarted=False)
        except BaseException:
            self._detach()
            self._link.close()
            raise
        self._info = DriverInfo(
            source="ads", joint_names=tuple(axis.joint for axis in self.config.axis),
            channels=attached.decoder.channels, rate_hz=1e9 / cycle_ns, clock="dc" if attached.dc else "plc",
            lossless=False, lead_s=self.config.lead_ms * 1e-3,
        )  # fmt: skip
        if self.config.enable:
            try:
                self.enable()
            except DriverError:
                self.close()
                raise

    def _begin(self, attached: Attached, restarted: bool) -> None:
        self._block_ns = attached.block_ns
        self._stream.attach(attached.program, attached.decoder, attached.head, restarted)
        self._axis_group.observe(attached.head, now_ns())
        if self._notified:
            attached.program.notify(self._stream.notified)
        self._due_ns = self._look_ns = now_ns()
        self._look_ns += _LOOK_NS
        self._state, self._problem = "running", ""

    def read(self, timeout_s: float = 1.0) -> JointFrame:
        """Return the next frame.

        Raises `DriverTimeoutError`: no frame within `timeout_s`; the message has the reason.  The next call tries
        again.
        """
        self._require_open("read")
        stream = self._stream
        if not self._reading:
            self._reading = True
            stream.begin()
            self._due_ns = min(self._due_ns, now_ns())
        if not stream.frames:
            self._wait(now_ns() + round(timeout_s * 1e9), timeout_s)
        frame, cycle = stream.frames.popleft()
        self._axis_group.frame(frame, cycle)
        return frame

    def _wait(self, limit_ns: int, timeout_s: float) -> None:
        """Do what is due until there are frames, or until `limit_ns`."""
        while True:
            at_ns = now_ns()
            if at_ns >= self._due_ns:
                self._step()
            elif self._notified and self._attached is not None and not self._stream.take_notified():
                self._due_ns = now_ns()  # a notification was lost; the ring has its block
            if self._stream.frames:
                return
            at_ns = now_ns()
            if at_ns >= limit_ns:
                why = f": {self._problem}" if self._problem else ""
                raise DriverTimeoutError(f"{self._label}: no frame within {timeout_s:g} s{why}")
            self._sleep(min(limit_ns, self._due_ns))

    def _sleep(self, until_ns: int) -> None:
        if self._notified and self._attached is not None:
            # The queue wakes this thread.
            self._stream.wait_notified(until_ns)
        else:
            sleep_until(until_ns)

    def close(self) -> None:
        """Stop the axes if they are on, and disconnect; may be called more than once."""
        opened, self._info = self._info is not None, None
        try:
            if opened and self._attached is not None and self._axis_group.active:
                self._stop_axes()
        finally:
            self._detach()
            self._link.close()

    def _detach(self) -> None:
        attached, self._attached = self._attached, None
        if attached is not None:
            attached.program.close()

    # --- the protocols Commandable and Reporting

    @property
    def enabled(self) -> bool:
        """Whether all axes are on and follow commands."""
        return self._info is not None and self._attached is not None and self._axis_group.enabled

    def enable(self) -> None:
        """Switch all axes on, over the next polls; the PLC resets faults on the way.

        Raises `CommandRefusedError`: `mode = "none"`, the PLC does not answer, or another program commands the axes.
        """
        self._require_open()
        self._axis_group.enable()
        self._due_ns = min(self._due_ns, now_ns())

    def disable(self) -> None:
        """Have the PLC stop all axes and switch them off, with the next poll."""
        self._require_open()
        self._axis_group.disable()
        self._due_ns = min(self._due_ns, now_ns()) if self._attached is not None else self._due_ns

    def command(self, target: FloatArray) -> None:
        """Set the target (n,) [rad] that follows the frame read last, `lead_ms` after its cycle.

        Raises `CommandRefusedError`: the axes are not enabled, or a target is not finite, beyond a limit, too large a
        step, or too late.
        """
        self._require_open()
        self._axis_group.command(target)

    def report(self) -> dict[str, Any]:
        """Return the state of connection, PLC and axes, and counts since `open`, as plain values."""
        self._require_open()
        stream, head = self._stream, self._stream.head
        assert head is not None
        here = self._attached is not None
        return {
            "state": self._state, "problem": self._problem, "enabled": self.enabled,
            "enable_failure": self._axis_group.failure, "axes_state": self._axis_group.state if here else "unknown",
            "axes_reason": REASONS.get(head.reason, f"reason {head.reason}"), **stream.counts(),
            "block_ms": self._block_ns * 1e-6, "requests": self._link.requests,
            "sum_commands": self._link.sum_commands, "reconnects": self._reconnects, "plc_restarts": self._restarts,
            "online_changes": self._online_changes, "last_recoveries": list(self._recoveries),
            "setpoint_buffers": self._axis_group.buffers, "setpoints_refused": head.refused,
            "setpoint_underruns": head.underruns, "exceeded_cycles": head.exceeded,
            "clock_drift_ppm": stream.clock.drift_ppm,
            "timing": {"round_trip": stream.round_trip.summary(), "age": stream.age.summary()},
        }  # fmt: skip

    # --- one step: poll, or reconnect

    def _step(self) -> None:
        try:
            if self._attached is None:
                self._reattach()
            else:
                self._poll(self._attached)
        except DriverClosedError:
            raise
        except AdsError as error:
            if self._attached is not None and error.code in MOVED and not self._link.broken:
                self._lose("looking the variables up again", str(error), keep_link=True)
            else:
                self._lose("no answer", str(error))
        except DriverError as error:
            self._lose("not usable", str(error))

    def _poll(self, attached: Attached) -> None:
        next_command = self._axis_group.next_command(attached.cycles(self._interval_ns), now_ns())
        if next_command is not None:
            self._heartbeat += 1
            assert self._stream.head is not None
            start, buffer = self._stream.head.start, next_command.buffer
            setpoints = None if buffer is None else (buffer.place, encode(buffer, start, attached.sizes))
            attached.program.write(start, self._heartbeat, next_command.enable, setpoints)
        run = attached.head.start
        head = self._stream.poll(0 if self._notified else attached.blocks(self._interval_ns), lag=int(self._notified))
        if head.start != run:
            self._lose("looking the variables up again", "the PLC program was restarted", keep_link=True)
            return
        at_ns = now_ns()
        self._axis_group.observe(head, at_ns)
        if at_ns - self._stream.new_ns > _STILL_NS:
            self._on_stall()
            self._due_ns = at_ns + _STILL_LOOK_NS
            return
        if self._state != "running":
            self._recovered(at_ns)
        self._due_ns = self._next_poll_ns(at_ns)
        if at_ns >= self._look_ns:
            self._look_ns = at_ns + _LOOK_NS
            if attached.program.moved():
                self._lose("looking the variables up again", "an online change", keep_link=True)

    @property
    def _interval_ns(self) -> int:
        return round(self.config.poll_ms * 1e6)

    def _next_poll_ns(self, at_ns: int) -> int:
        """Return when the last block within `poll_ms` will be complete; `poll_ms` later if none will."""
        attached = self._attached
        assert attached is not None
        if self._notified and not self._axis_group.active:
            return at_ns + max(_HEAD_NS, self._interval_ns)
        latest_ns = at_ns + self._interval_ns
        if self._notified:
            return latest_ns
        block_ns = attached.block_ns
        complete_ns = self._stream.new_ns + self._stream.expected_in_ns + attached.info.cycle_ns // 2
        if complete_ns > latest_ns:
            return latest_ns
        return max(complete_ns + (latest_ns - complete_ns) // block_ns * block_ns, at_ns + 1_000_000)

    def _on_stall(self) -> None:
        if self._state == "running":
            self._outage_ns = now_ns()
        before = self._problem
        state, _ = self._link.state()
        if state == RUN:
            self._state = "not counting"
            self._problem = (
                "the PLC is in run mode, and its program counts no cycles: a breakpoint, or FB_Theta is not called"
            )
        else:
            name = STATES.get(state, str(state))
            self._state, self._problem = f"PLC in {name}", f"the PLC is in {name} mode: start it"
        if self._problem != before:
            self._notice("bus_lost", "bus", self._problem)
        self._axis_group.lost(self._problem)

    def _lose(self, state: str, problem: str, keep_link: bool = False) -> None:
        """Continue without the PLC's variables until `_reattach`, which follows at once if only they have changed."""
        at_ns = now_ns()
        if not self._outage_ns:
            self._outage_ns = at_ns
        was_there = self._attached is not None
        if state != self._state:
            self._notice("bus_lost", "bus", f"{state}: {problem}")
        self._detach()
        self._axis_group.lost(problem or state)
        self._state, self._problem = state, problem
        if not keep_link:
            self._link.close()
        if was_there:
            self._retry_ns = _FIRST_RETRY_NS
        self._due_ns = at_ns if keep_link and was_there else at_ns + self._retry_ns
        self._retry_ns = min(2 * self._retry_ns, round(self.config.reconnect_max_s * 1e9))

    def _reattach(self) -> None:
        reconnected = not self._link.is_open
        before = self._stream.head
        attached = attach(self._link, self.config)
        assert self._info is not None
        assert before is not None
        same_rate = abs(1e9 / attached.info.cycle_ns - self._info.rate_hz) < 1e-6
        if attached.decoder.channels != self._info.channels or not same_rate:
            attached.program.close()
            raise DriverConfigError(
                "the PLC program has other channels or another cycle than at the start: restart thetad to take them"
            )
        self._attached = attached
        restarted = attached.head.start != before.start
        self._restarts += restarted
        self._reconnects += reconnected
        self._online_changes += not (restarted or reconnected)
        self._recovered(now_ns())
        self._begin(attached, restarted)

    def _recovered(self, at_ns: int) -> None:
        if self._outage_ns:
            lasted_ms = (at_ns - self._outage_ns) * 1e-6
            self._recoveries.append({"cause": self._problem or self._state, "duration_ms": lasted_ms})
            self._notice("bus_recovered", "bus", f"samples come again, after {lasted_ms * 1e-3:.3g} s")
        self._outage_ns, self._retry_ns = 0, _FIRST_RETRY_NS
        self._state, self._problem = "running", ""

    # --- end

    def _stop_axes(self) -> None:
        self._axis_group.disable()
        until_ns = now_ns() + _STOP_NS
        while self._axis_group.active and now_ns() < until_ns:
            attached = self._attached
            assert attached is not None
            try:
                self._poll(attached)
            except AdsError:
                return  # the PLC stops them without a heartbeat
            if self._attached is None:
                return
            self._stream.frames.clear()
            sleep_until(now_ns() + self._interval_ns)
