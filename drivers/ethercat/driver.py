"""EtherCAT driver: frames from servo drives on the grid of the distributed clock."""

from collections import deque
from dataclasses import asdict
from typing import Any

import numpy as np

from drivers.driver import CommandRefusedError, DriverInfo, DriverTimeoutError, OpenedInWith
from drivers.ethercat._outages import Outages, needs_recovery
from drivers.ethercat._startup import StartedBus, start, state_problems
from drivers.ethercat.bus.al_status import INIT, OP, SAFEOP, AlStatus
from drivers.ethercat.bus.bus import Bus
from drivers.ethercat.bus.exchange import Exchange, valid_joints
from drivers.ethercat.bus.master import Emergency, status_text
from drivers.ethercat.bus.slave_recovery import RecoveredSlave, SlaveRecoveries
from drivers.ethercat.config import EthercatConfig
from drivers.ethercat.drive.cia402 import DriveState
from drivers.ethercat.drive.drive_group import DriveGroup
from drivers.ethercat.drive.process_data import ProcessData
from drivers.ethercat.errors import BusStateError
from drivers.frame import JointFrame
from drivers.timing import now_ns, sleep_until
from rt_core.types import FloatArray

#: SYNC0 starts 100 ms after it is set; the mapping of the clocks settles within the same time.
_SETTLE_NS = 150_000_000
_REG_DL_STATUS, _LINKS = 0x0110, 0xF0
#: Period of the checks of AL states, and of one drive's mailbox for emergencies.
_CHECK_NS = 10_000_000
#: How much longer it is where nothing arrives on one side of a ring, since each check costs a time-out.
_ONE_SIDED = 10
#: On close, beyond the time limit of a stop.
_AFTER_STOP_NS = 200_000_000


class EthercatDriver(OpenedInWith):
    """Servo drives on EtherCAT.

    `read` keeps the cycle: it sleeps to the deadline, exchanges process data and decodes it; between two cycles it
    handles AL states, emergencies and recoveries.  If the caller stops reading, the drives stop by their watchdogs.

    `seq` counts SYNC0 from the first frame; each number has a frame or is counted as lost or overrun.  `t_bus_ns` is
    the DC time of the SYNC0 at which the inputs were latched.  Joints whose slaves did not take part in a cycle are
    invalid in its frame.  Without distributed clocks, a grid on CLOCK_MONOTONIC replaces SYNC0.
    """

    def __init__(self, config: EthercatConfig) -> None:
        self.config = config
        self._bus = Bus(config.interface, config.redundant_interface)
        self._label = f"EtherCAT on {config.interface}"
        self._reset()

    def _reset(self) -> None:
        config = self.config
        self._positions = config.positions
        self._started: StartedBus | None = None
        self._exchange = Exchange(self._bus, config)
        self._statuses: list[AlStatus | None] = []
        self._repaired: list[RecoveredSlave] = []
        self._emergencies: deque[Emergency] = deque(maxlen=10)
        self._emergency_count = 0
        self._wkc_errors = 0
        self._complete = True  # the last cycle had the full working counter
        self._check_due_ns = 0
        self._checked_states = False  # before the last cycle
        self._mailbox_due_ns = 0
        self._mailbox_turn = 0
        self._ends: set[int] = set()  # of an open ring: slaves with a link on one side only
        self._ends_turn = 0
        self._outages = Outages(self._bus, config, self._notice)

    # --- the protocol Driver

    def open(self) -> None:
        """Bring the drives to OP, not switched on.

        Waits end at `start_timeout_s`; a scan under way then, at most 3 s, and one SDO may follow.  Mapping process
        data is one call of SOEM that cannot be interrupted, and may not return if slaves go away meanwhile.  On failure
        the bus is left in a safe state and released.  Raises `DriverConfigError` if the network or a drive does not
        match the configuration; `DriverConnectionError`: interface, permission, another master, or a slave that does
        not reach OP; `DriverError`: it is open already, or a drive refuses an SDO.
        """
        self._require_closed()
        self._reset()
        config = self.config
        until_ns = now_ns() + round(config.start_timeout_s * 1e9)
        try:
            self._started = started = start(self._bus, config, until_ns)
            self._data = ProcessData(config, started.scaling)
            self._drives = DriveGroup(config, started.scaling, self._data)
            self._repair = SlaveRecoveries(self._bus, config, started.images, self._exchange.clock)
            self._to_operational(until_ns)
        except BaseException:
            self._release()
            raise
        for text in self._bus.warnings:
            self._notice("bus_warning", text, text)
        self._info = DriverInfo(
            source="ethercat", joint_names=tuple(drive.joint for drive in config.drive), channels=self._data.channels,
            rate_hz=float(config.cycle_hz), clock="dc" if started.has_dc else "monotonic", lossless=False,
        )  # fmt: skip
        if config.enable:
            self.enable()

    def read(self, timeout_s: float = 1.0) -> JointFrame:
        """Run cycles until the next frame, and return it.

        Raises `DriverTimeoutError` without one within `timeout_s`: the bus does not answer.  The next call tries again.
        `DriverConnectionError`: the driver has to be closed and opened.
        """
        self._require_open("read")
        limit_ns = now_ns() + round(timeout_s * 1e9)
        while True:
            # a process that was held up itself has been answered as long as it asked
            self._outages.look(self._exchange.silent and self._exchange.unanswered_in_a_row > 0)
            if self._outages.problem:
                sleep_until(min(limit_ns, self._outages.look_ns))
                over = now_ns() >= limit_ns
            else:
                self._between_cycles(now_ns())
                over = not self._exchange.wait(limit_ns)
            if over:
                unanswered = self._exchange.unanswered_in_a_row
                raise DriverTimeoutError(
                    f"{self._label}: no frame within {timeout_s:g} s"
                    + (f"; the last {unanswered} frames had no answer" if unanswered else "")
                    + (f"; {self._outages.problem}" if self._outages.problem else "")
                )
            frame = None if self._outages.problem else self._cycle()
            if frame is not None:
                return frame

    def close(self) -> None:
        """Stop the drives, bring them to INIT and release the bus; may be called more than once."""
        self._info = None
        self._release()

    # --- the protocols Commandable and Reporting

    @property
    def enabled(self) -> bool:
        """Whether all drives are switched on and follow commands."""
        return self._info is not None and self._drives.enabled

    def enable(self) -> None:
        """Switch all drives on, over the next cycles; faults are reset on the way.

        Raises `CommandRefusedError` with `mode = "none"`, if a slave is not in OP, or if the bus does not answer.
        """
        self._require_open()
        if self._exchange.silent:
            raise CommandRefusedError("drives cannot be enabled: no slave answers")
        if self._repair.positions:
            raise CommandRefusedError(
                f"drives cannot be enabled: {state_problems(dict(self._not_operational()), self.config)}"
            )
        self._drives.enable(now_ns())

    def disable(self) -> None:
        """Stop all drives along their quick-stop ramp and switch them off, over the next cycles."""
        self._require_open()
        self._drives.disable()

    def command(self, target: FloatArray) -> None:
        """Set the target (n,) of the next cycle: [rad], [rad/s] or [N*m] by the mode.

        Raises `CommandRefusedError` if not all drives are enabled, or a target is not finite, beyond a limit, or too
        large a step.
        """
        self._require_open()
        self._drives.command(target, self._exchange.index)

    def report(self) -> dict[str, Any]:
        """Return the state of bus and drives, and counts since `open`, as plain values."""
        self._require_open()
        exchange, repair = self._exchange, self._repair
        account, clock = exchange.account, exchange.clock
        drives = []
        for joint, position in enumerate(self.config.positions):
            status = self._statuses[position] if position < len(self._statuses) else None
            drive = self._drives.report(joint)
            if exchange.silent:  # the last state is outdated
                status = None
                drive |= {"state": DriveState.UNKNOWN.value, "enabled": False}
            joint_name = self.config.drive[joint].joint
            drives.append({"joint": joint_name, "position": position, "al_state": status_text(status), **drive})
        return {
            "state": "no answer" if exchange.silent else ("recovering" if repair.positions else "operational"),
            "problem": self._outages.problem,
            "warnings": list(self._bus.warnings),
            "enabled": self._drives.enabled and not exchange.silent,
            "enable_failure": self._drives.failure,
            "drives": drives,
            "frames": account.frames,
            "lost_cycles": account.lost,
            "overruns": account.overruns,
            "repeated_answers": account.repeated,
            "unanswered_exchanges": exchange.unanswered,
            "stale_answers": self._bus.stale_frames,
            "frames_filtered": self._bus.frames_filtered,
            "wkc_expected": self._started.expected_wkc if self._started else 0,
            "wkc_errors": self._wkc_errors,
            "ring_open_at": sorted(self._ends),
            "emergencies": self._emergency_count,
            "last_emergencies": [asdict(e) | {"data": e.data.hex()} for e in self._emergencies],
            "mailbox_errors": self._bus.mailbox_errors,
            "recoveries": len(self._repaired),
            "last_recoveries": [
                {
                    "position": r.position, "cause": status_text(r.cause), "duration_ms": r.duration_ns * 1e-6,
                    "failures": r.failures,
                }
                for r in self._repaired[-10:]
            ],
            "clock_drift_ppm": clock.drift_ppm,
            "clock_steps": clock.steps,
            "timing": {name: histogram.summary() for name, histogram in exchange.histograms.items()},
        }  # fmt: skip

    def _not_operational(self) -> dict[int, AlStatus | None]:
        return {k: status for k, status in enumerate(self._statuses) if status is None or status.state != OP}

    # --- one cycle

    def _cycle(self) -> JointFrame | None:
        """Do one exchange; return its frame, or None without an answer or for a repeated sample."""
        exchange = self._exchange
        images = self._drives.images_at(exchange.due)
        previous = self._drives.sent_setpoint
        wkc = exchange.run(images)
        if wkc < 0:
            return None
        received_ns = now_ns()
        fresh = exchange.account.answered(exchange.seq)
        received = self._validity(wkc, received_ns)
        channels = self._data.decode([self._bus.input(position) for position in self._positions])
        valid = self._data.finite(channels, received)
        if "setpoint" in self._data.channels:
            channels["setpoint"] = channels["q"].copy() if previous is None else previous
        self._drives.step(received_ns, None if received is None else received.tolist())
        if not fresh:
            return None
        frame = JointFrame(
            seq=exchange.seq, t_bus_ns=exchange.clock.sample_time_ns(exchange.index), t_host_ns=received_ns,
            status_word=self._data.status_array, valid=valid, **channels,
        )  # fmt: skip
        exchange.histograms["execution"].add(now_ns() - exchange.sent_ns)
        return frame

    def _validity(self, wkc: int, received_ns: int) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        started = self._started
        self._complete = started is None or wkc == started.expected_wkc
        if started is None or self._complete:
            return None
        self._wkc_errors += 1
        joints, known = valid_joints(started.expected_wkc - wkc, self._statuses, started.weights, self.config.positions)
        if not known:
            self._check_due_ns = received_ns
        return joints

    # --- between two cycles

    def _between_cycles(self, at_ns: int) -> None:
        """Check states or one mailbox, or do one step of a recovery."""
        if self._exchange.unanswered_in_a_row:  # without answers these calls would take long
            return
        checked, self._checked_states = self._checked_states, False
        next_ns = at_ns + _CHECK_NS * (_ONE_SIDED if self._bus.one_sided else 1)
        # A working counter that no state explains triggers a check after each cycle: alternate with recovery steps.
        if self._check_due_ns <= at_ns and not (checked and self._repair.positions):
            self._checked_states = True
            self._check_due_ns = next_ns
            self._update_statuses(self._bus.al_statuses(), at_ns)
            if self.config.redundant_interface is not None:
                self._check_cables()
        elif (result := self._repair.run(at_ns, self._complete)) is not None:
            position, status, repaired = result
            self._statuses[position] = status
            if needs_recovery(status) and position in self.config.positions:
                self._drives.lost(self.config.positions.index(position))
            self._outages.slave(position, status, repaired)
            if repaired is not None:
                self._repaired.append(repaired)
        elif self._mailbox_due_ns <= at_ns:
            self._mailbox_due_ns = next_ns
            self._mailbox_turn = (self._mailbox_turn + 1) % len(self._statuses)
            if self._mailbox_turn not in self._repair:
                self._bus.poll_mailbox(self._mailbox_turn)
        self._collect_emergencies()

    def _update_statuses(self, statuses: list[AlStatus | None], at_ns: int) -> None:
        self._statuses = statuses
        for position, status in enumerate(statuses):
            if needs_recovery(status):
                self._repair.begin(position, status, at_ns)  # it reads the status of this slave again

    def _check_cables(self) -> None:
        """Check whether the next slave of the ring has a link on both sides; once a turn also the interfaces.

        Raises `DriverConnectionError` while the drives are off.
        """
        self._ends_turn = position = (self._ends_turn + 1) % len(self._statuses)
        if position == 0 and not self._drives.enabled:
            self._bus.interface_problem()
        raw = self._bus.read_register(position, _REG_DL_STATUS, 1)
        if raw is not None:  # a lost frame says nothing
            (self._ends.add if (raw[0] & _LINKS).bit_count() < 2 else self._ends.discard)(position)
        if position == len(self._statuses) - 1:
            self._outages.ring(self._ends)

    def _collect_emergencies(self) -> None:
        while self._bus.emergencies:
            self._emergencies.append(self._bus.emergencies.popleft())
            self._emergency_count += 1

    # --- start and end

    def _to_operational(self, until_ns: int) -> None:
        """Run cycles, first in SAFE-OP until the clocks have settled, then until all slaves are in OP.

        Raises `BusStateError` if a slave refuses OP or does not reach it.
        """
        bus, exchange, began_ns = self._bus, self._exchange, now_ns()
        asked_ns = look_ns = 0
        exchange.start(self._started is not None and self._started.has_dc)
        bus.streaming = True
        while not self._turn():  # the mapping of the clocks starts with the first answer
            self._check_silence()
        while True:
            sleep_until(exchange.deadline_ns())
            self._turn()
            self._check_silence()
            at_ns = now_ns()
            if not asked_ns:
                if at_ns - began_ns > _SETTLE_NS:
                    bus.request_all(OP)
                    asked_ns = look_ns = at_ns
            elif at_ns > look_ns and not exchange.unanswered_in_a_row:
                look_ns = at_ns + _CHECK_NS
                self._statuses = bus.al_statuses()
                left = self._not_operational()
                if not left:
                    break
                refused = any(status is not None and status.error for status in left.values())
                if refused or at_ns > min(asked_ns + round(self.config.op_timeout_ms * 1e6), until_ns):
                    raise BusStateError(f"not all slaves reach OP: {state_problems(left, self.config)}")
        exchange.begin()

    def _turn(self) -> bool:
        """Run one cycle without a frame; return False without an answer."""
        if self._exchange.run(self._drives.images) < 0:
            return False
        self._data.decode([self._bus.input(position) for position in self._positions])
        self._drives.step(now_ns(), None)
        return True

    def _check_silence(self) -> None:
        if self._exchange.silent:
            raise BusStateError(f"{self._label}: the bus went silent during the start")

    def _release(self) -> None:
        """Stop the drives if they can be reached, and release the bus, whatever the state of the start."""
        try:
            # Slaves that were not scanned may belong to another master.
            if self._bus.is_open and self._bus.scanned:
                if self._bus.streaming:
                    self._stop_drives()
                self._leave_states()
        finally:
            self._bus.close()

    def _stop_drives(self) -> None:
        exchange = self._exchange
        self._drives.disable()
        until_ns = now_ns() + round(self.config.stop_timeout_ms * 1e6) + _AFTER_STOP_NS
        after = 3  # cycles with the last controlword, so that all drives receive it
        while after and now_ns() < until_ns and not exchange.silent:
            sleep_until(min(exchange.deadline_ns(), now_ns() + 2 * exchange.clock.cycle_ns))
            self._turn()
            if self._drives.stopped:
                after -= 1

    def _leave_states(self) -> None:
        if self._started is not None and self._bus.request_all(SAFEOP) and self._started.has_dc:
            for position in self.config.positions:
                self._bus.set_sync0(position, 0, 0)
        self._bus.request_all(INIT)
