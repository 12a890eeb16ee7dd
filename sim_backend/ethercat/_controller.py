"""Device side of one EtherCAT slave controller: states, mailbox, EEPROM, process data, watchdog.

A `SlaveController` shares its memory with the data link layer, which reports accesses of the master as events; `tick`
does what takes time.  All times are CLOCK_MONOTONIC [ns] and are passed in.
"""

import struct

from sim_backend.canopen.dictionary import ObjectDictionary, SdoAbort
from sim_backend.ethercat import registers as reg
from sim_backend.ethercat._al_state import StateMachine
from sim_backend.ethercat._coe import CoeServer
from sim_backend.ethercat._mailbox import Mailbox
from sim_backend.ethercat._pdo import ImagePacker, ProcessImage
from sim_backend.ethercat._profile import DeviceProfile
from sim_backend.ethercat._sii import SiiInterface, build_sii
from sim_backend.ethercat.registers import UInt8Array

_MAILBOX_MIN = 32  # bytes that every mailbox service fits into
_CONTROL = reg.SM_CONTROL_MODE_MASK | reg.SM_CONTROL_DIRECTION_MASK
_CONTROLS = (
    reg.SM_MODE_MAILBOX | reg.SM_DIRECTION_WRITE, reg.SM_MODE_MAILBOX | reg.SM_DIRECTION_READ,
    reg.SM_MODE_BUFFERED | reg.SM_DIRECTION_WRITE, reg.SM_MODE_BUFFERED | reg.SM_DIRECTION_READ,
)  # fmt: skip
_MAILBOX_OUT, _MAILBOX_IN = reg.SM + reg.SM_MAILBOX_OUT * reg.SM_SIZE, reg.SM + reg.SM_MAILBOX_IN * reg.SM_SIZE
_OUTPUTS, _INPUTS = reg.SM + reg.SM_OUTPUTS * reg.SM_SIZE, reg.SM + reg.SM_INPUTS * reg.SM_SIZE
#: Durations of a change to a higher AL state, and of a command of the EEPROM.
_TRANSITION_NS, _SII_NS = 2_000_000, 20_000
_WITH_MAILBOX = (reg.AL_PREOP, reg.AL_SAFEOP, reg.AL_OP)
_WITH_PROCESS_DATA = (reg.AL_SAFEOP, reg.AL_OP)


class SlaveController:
    """One slave over its memory (0x3000,): registers and RAM, contiguous.

    The dictionary is `build_dictionary` of the profile; the drive holds entries of it.  Station alias and serial number
    are those in the EEPROM.  `refuse_op` refuses OP with the AL status code `refuse_op_code`; `lost_emergencies` counts
    those for which the mailbox was full.  `fresh`: the master has written outputs between the last two calls of
    `latch_outputs`.
    """

    def __init__(
        self, memory: UInt8Array, profile: DeviceProfile, dictionary: ObjectDictionary, *, alias: int = 0,
        serial: int = 0,
    ) -> None:  # fmt: skip
        self._memory = memory
        self._view = memory.data
        self.profile = profile
        self.dictionary = dictionary
        self.refuse_op = False
        self.refuse_op_code = reg.AL_CODE_INVALID_INPUTS
        self.lost_emergencies = 0
        self._sii = SiiInterface(memory, build_sii(profile, alias=alias, serial=serial), _SII_NS)
        self._al = StateMachine(self._view, self._check, self._entered, transition_ns=_TRANSITION_NS)
        coe = CoeServer(
            dictionary, complete_access=profile.mailbox.complete_access, sdo_information=profile.mailbox.sdo_information
        )
        self._mailbox = Mailbox(coe)
        self._sent: bytes | None = None  # in the send buffer, not read yet
        self._images = (
            ProcessImage(dictionary, outputs=True, max_bytes=profile.outputs.max_bytes),
            ProcessImage(dictionary, outputs=False, max_bytes=profile.inputs.max_bytes),
        )
        self._outputs: ImagePacker | None = None
        self._inputs: ImagePacker | None = None
        self._valid_outputs = False
        self._written = False  # since outputs were last taken over
        self.fresh = False
        self._outputs_ns = 0
        self._watchdog_ns = 0  # 0: off
        self.power_on()

    @property
    def al_state(self) -> int:
        """AL state without the error bit: INIT 1, PREOP 2, SAFEOP 4, OP 8."""
        return self._al.state

    def power_on(self) -> None:
        """Clear the memory and restart; the EEPROM keeps its content."""
        view = self._view
        self._memory[:] = 0
        view[reg.TYPE] = 0x11
        struct.pack_into("<H", view, reg.BUILD, 2)
        view[reg.FMMU_COUNT_REGISTER], view[reg.SM_COUNT_REGISTER] = reg.FMMU_COUNT, reg.SM_COUNT
        view[reg.RAM_SIZE] = (reg.MEMORY_SIZE - reg.RAM_START) // 1024
        view[reg.PORT_DESCRIPTOR] = reg.PORT_MII | reg.PORT_MII << 2
        struct.pack_into("<H", view, reg.FEATURES, reg.FEATURE_DC | reg.FEATURE_DC_64_BIT)
        struct.pack_into("<I", view, reg.DL_CONTROL, 0x0007C001)
        view[reg.PDI_CONTROL], view[reg.ESC_CONFIGURATION] = 0x05, 0x0C
        struct.pack_into("<H", view, reg.WATCHDOG_DIVIDER, reg.WATCHDOG_DIVIDER_DEFAULT)
        struct.pack_into("<H", view, reg.WATCHDOG_PDI_TIME, reg.WATCHDOG_TIME_DEFAULT)
        struct.pack_into("<H", view, reg.WATCHDOG_PROCESS_DATA_TIME, reg.WATCHDOG_TIME_DEFAULT)
        struct.pack_into("<H", view, reg.DC_SPEED_COUNTER_START, reg.DC_SPEED_COUNTER_START_DEFAULT)
        view[reg.DC_DIFFERENCE_FILTER_DEPTH] = reg.DC_DIFFERENCE_FILTER_DEPTH_DEFAULT
        view[reg.DC_SPEED_FILTER_DEPTH] = reg.DC_SPEED_FILTER_DEPTH_DEFAULT
        self._sii.power_on()
        self._al.power_on()
        self._stop_mailbox()
        self._stop_process_data()
        for entry in self.dictionary:
            entry.value = entry.default

    def on_event(self, kind: int, now_ns: int) -> None:
        """Handle an access of the master, one of `registers.EVENT_...`."""
        if kind == reg.EVENT_OUTPUTS:
            self._valid_outputs = self._written = True
            self._outputs_ns = now_ns
            self._view[reg.WATCHDOG_STATUS] |= 1
        elif kind == reg.EVENT_AL_CONTROL:
            self._al.control(now_ns)
        elif kind == reg.EVENT_SII:
            self._sii.start(now_ns)
        elif kind == reg.EVENT_MAILBOX_IN:
            self._exchange_messages()
        elif kind == reg.EVENT_MAILBOX_OUT:
            if self._sent is not None:
                self._mailbox.was_read(self._sent)
                self._sent = None
            self._exchange_messages()
        elif kind == reg.EVENT_SM_CHANGED:
            self._sync_managers_changed()
        elif kind == reg.EVENT_DC_CHANGED:
            self._sync_unit_changed()

    def tick(self, now_ns: int) -> int:
        """Do what is due; return the time of the next thing due, or `NEVER_NS`."""
        self._sii.tick(now_ns)
        if now_ns >= self._al.due_ns:
            if self._al.state == reg.AL_SAFEOP:
                self._outputs_ns = max(self._outputs_ns, now_ns)  # the watchdog runs from here
            self._al.tick(now_ns)
        due = min(self._sii.due_ns, self._al.due_ns)
        if self._watchdog_ns and self._al.state == reg.AL_OP:
            expiry = self._outputs_ns + self._watchdog_ns
            if now_ns >= expiry:
                self._trip()
                return due
            due = min(due, expiry)
        return due

    def latch_outputs(self) -> bool:
        """Copy the outputs into the dictionary; False, and nothing done, unless in OP."""
        self.fresh, self._written = self._written, False
        if self._al.state != reg.AL_OP or self._outputs is None:
            return False
        self._outputs.unpack(self._view, self.profile.outputs.start)
        return True

    def publish_inputs(self) -> None:
        """Store the dictionary's values in the input image, in SAFEOP and OP."""
        if self._inputs is not None:
            self._inputs.pack(self._view, self.profile.inputs.start)

    def emergency(self, code: int, register: int, data: bytes = b"") -> None:
        """Send an emergency: error code, error register (also stored in 0x1001), up to 5 bytes of data."""
        self.dictionary.entry(0x1001).value = register & 0xFF
        if self._al.state in _WITH_MAILBOX:
            if not self._mailbox.emergency(code, register, data):
                self.lost_emergencies += 1
            self._exchange_messages()

    def raise_al_error(self, code: int, fall_to: int) -> None:
        """Report an AL status code and fall to a state, unless the slave is in a lower one."""
        self._al.fail(code, fall_to)

    def _exchange_messages(self) -> None:
        """Move messages: requests out of the receive buffer, replies into the send buffer."""
        view = self._view
        if self._al.state not in _WITH_MAILBOX:
            return
        if view[_MAILBOX_OUT + reg.SM_STATUS] & reg.SM_STATUS_FULL and not self._mailbox.full:
            start, length = struct.unpack_from("<HH", view, _MAILBOX_OUT)
            data = bytes(view[start : start + length])
            view[_MAILBOX_OUT + reg.SM_STATUS] &= ~reg.SM_STATUS_FULL & 0xFF
            if len(data) >= _MAILBOX_MIN:
                self._mailbox.request(data, self._al.state)
        if self._sent is None:
            self._send(self._mailbox.next())

    def _send(self, message: bytes | None) -> None:
        if message is None:
            return
        start, length = struct.unpack_from("<HH", self._view, _MAILBOX_IN)
        if length < len(message) or start + length > reg.MEMORY_SIZE:
            return  # the sync manager has been taken away
        self._view[start : start + length] = message.ljust(length, b"\0")
        self._view[_MAILBOX_IN + reg.SM_STATUS] |= reg.SM_STATUS_FULL
        self._sent = message

    def _stop_mailbox(self) -> None:
        self._sent = None
        self._mailbox.start(self.profile.mailbox.send_bytes)
        for manager in (_MAILBOX_OUT, _MAILBOX_IN):
            self._view[manager + reg.SM_STATUS] &= ~reg.SM_STATUS_FULL & 0xFF

    def _stop_process_data(self) -> None:
        """Lock the sync managers of process data, as devices do below SAFEOP."""
        self._outputs = self._inputs = None
        self._valid_outputs = False
        for manager in (_OUTPUTS, _INPUTS):
            self._view[manager + reg.SM_PDI_CONTROL] |= reg.SM_PDI_DEACTIVATE
            self._view[manager + reg.SM_STATUS] = 0

    def _sync_managers_changed(self) -> None:
        wanted = self._view[_MAILBOX_IN + reg.SM_ACTIVATE] & reg.SM_ACTIVATE_REPEAT
        if wanted != self._view[_MAILBOX_IN + reg.SM_PDI_CONTROL] & reg.SM_PDI_REPEAT_ACKNOWLEDGE:
            if self._al.state in _WITH_MAILBOX:
                unread, self._sent = self._sent, None
                self._send(self._mailbox.repeat(unread))
            self._view[_MAILBOX_IN + reg.SM_PDI_CONTROL] ^= reg.SM_PDI_REPEAT_ACKNOWLEDGE
        if self._al.state in _WITH_MAILBOX and not self._mailbox_ready():
            self._al.fail(reg.AL_CODE_INVALID_MAILBOX_PREOP, reg.AL_INIT)
        elif self._al.state in _WITH_PROCESS_DATA:
            code = self._check_images()
            if code:
                self._al.fail(code, reg.AL_PREOP)

    def _sync_unit_changed(self) -> None:
        """Fall out of OP when SYNC0 is switched off that the device needs, or gets settings that it does not take."""
        if self._al.state in _WITH_PROCESS_DATA:
            code = self._check_clock()
            if not code and self._al.state == reg.AL_OP and self._lacks_sync0():
                code = reg.AL_CODE_FATAL_SYNC
            if code:
                self._al.fail(code, reg.AL_SAFEOP)

    def _lacks_sync0(self) -> bool:
        return self.profile.dc.required and not self._view[reg.DC_ACTIVATION] & reg.DC_ACTIVATE_SYNC0

    def _check(self, _state: int, target: int) -> int | None:
        """Tell what keeps the device from a higher state; see `al_state.Check`."""
        if target == reg.AL_PREOP:
            return reg.AL_CODE_NONE if self._mailbox_ready() else reg.AL_CODE_INVALID_MAILBOX_PREOP
        if target == reg.AL_SAFEOP:
            return self._check_images() or self._check_clock()
        if self.refuse_op:
            return self.refuse_op_code
        code = self._check_images() or self._check_clock()
        if code:
            return code
        if self._lacks_sync0():
            return reg.AL_CODE_NO_SYNC
        if self._outputs is not None and self._outputs.size and not self._valid_outputs:
            return None
        return reg.AL_CODE_NONE

    def _entered(self, former: int, state: int) -> None:
        if state == reg.AL_INIT:
            self._stop_mailbox()
        elif former == reg.AL_INIT:
            (length,) = struct.unpack_from("<H", self._view, _MAILBOX_IN + reg.SM_LENGTH)
            self._mailbox.start(length)
            self._exchange_messages()  # masters write their first request before the state is reached
        if state not in _WITH_PROCESS_DATA:
            self._stop_process_data()
        elif state == reg.AL_SAFEOP and former == reg.AL_PREOP:
            self._outputs, self._inputs = (image.packer() for image in self._images)
            for manager in (_OUTPUTS, _INPUTS):
                self._view[manager + reg.SM_PDI_CONTROL] &= ~reg.SM_PDI_DEACTIVATE & 0xFF
            self._show_synchronisation()
            self.publish_inputs()
        elif state == reg.AL_OP:
            self._watchdog_ns = self._watchdog_time()

    def _manager(self, number: int) -> tuple[int, int, int, bool]:
        """Return start, length, mode with direction, and whether a sync manager is enabled."""
        start, length, control, _, activate = struct.unpack_from("<HHBBB", self._view, reg.SM + number * reg.SM_SIZE)
        return start, length, control & _CONTROL, bool(activate & reg.SM_ACTIVATE_ENABLE)

    def _mailbox_ready(self) -> bool:
        mailbox = self.profile.mailbox
        areas = ((mailbox.receive_start, mailbox.receive_bytes), (mailbox.send_start, mailbox.send_bytes))
        for number, (first, size) in enumerate(areas):
            start, length, control, enabled = self._manager(number)
            if not enabled or start != first or not _MAILBOX_MIN <= length <= size or control != _CONTROLS[number]:
                return False
        return True

    def _check_images(self) -> int:
        """Compare the sync managers of process data with assignment and mapping; 0 if they agree."""
        starts = (self.profile.outputs.start, self.profile.inputs.start)
        codes = (reg.AL_CODE_INVALID_OUTPUTS, reg.AL_CODE_INVALID_INPUTS)
        for image, number, first, code in zip(
            self._images, (reg.SM_OUTPUTS, reg.SM_INPUTS), starts, codes, strict=True
        ):
            try:
                size = image.packer().size
            except SdoAbort:
                return code
            start, length, control, enabled = self._manager(number)
            if size == 0:
                if enabled and length:
                    return code
            elif not enabled or (start, length, control) != (first, size, _CONTROLS[number]):
                return code
        return reg.AL_CODE_NONE

    def _check_clock(self) -> int:
        """Check the settings of SYNC0 where the master uses it; 0 if they are valid."""
        activation = self._view[reg.DC_ACTIVATION]
        if not activation & (reg.DC_ACTIVATE_SYNC0 | reg.DC_ACTIVATE_SYNC1):
            return reg.AL_CODE_NONE
        if activation & (reg.DC_ACTIVATE_CYCLIC | reg.DC_ACTIVATE_SYNC0) != 0x03:
            return reg.AL_CODE_INVALID_DC
        (cycle,) = struct.unpack_from("<I", self._view, reg.DC_SYNC0_CYCLE)
        clock = self.profile.dc
        return reg.AL_CODE_NONE if clock.min_cycle_ns <= cycle <= clock.max_cycle_ns else reg.AL_CODE_DC_CYCLE

    def _show_synchronisation(self) -> None:
        """Set the synchronisation type and cycle in 0x1C32 and 0x1C33."""
        clocked = bool(self._view[reg.DC_ACTIVATION] & reg.DC_ACTIVATE_SYNC0)
        (cycle,) = struct.unpack_from("<I", self._view, reg.DC_SYNC0_CYCLE)
        for index in (0x1C32, 0x1C33):
            self.dictionary.entry(index, 1).value = 2 if clocked else 0
            self.dictionary.entry(index, 2).value = cycle if clocked else 0

    def _watchdog_time(self) -> int:
        """Return the time without outputs after which the watchdog trips [ns], 0 if it is off."""
        if not self._view[_OUTPUTS + reg.SM_CONTROL] & reg.SM_CONTROL_WATCHDOG:
            return 0
        (divider,) = struct.unpack_from("<H", self._view, reg.WATCHDOG_DIVIDER)
        (units,) = struct.unpack_from("<H", self._view, reg.WATCHDOG_PROCESS_DATA_TIME)
        return (int(divider) + 2) * reg.WATCHDOG_CLOCK_NS * int(units)

    def _trip(self) -> None:
        self._view[reg.WATCHDOG_STATUS] &= 0xFE
        count = self._view[reg.WATCHDOG_PROCESS_DATA_COUNTER]
        self._view[reg.WATCHDOG_PROCESS_DATA_COUNTER] = min(count + 1, 0xFF)
        self._valid_outputs = False
        self._al.fail(reg.AL_CODE_WATCHDOG, reg.AL_SAFEOP)
