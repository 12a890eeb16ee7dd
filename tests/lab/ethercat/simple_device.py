"""A device that does little: AL states at once, outputs returned as inputs."""

from dataclasses import dataclass, field

from sim_backend.ethercat import registers as r


@dataclass
class Echo:
    """Device over the memory of one slave: its inputs at 0x1400 are what it last took over from 0x1100."""

    memory: r.UInt8Array
    events: list[tuple[int, int]] = field(default_factory=list)
    ticks: list[int] = field(default_factory=list)
    due_ns: int = r.NEVER_NS
    size: int = 16
    _outputs: bytes = b""

    @property
    def al_state(self) -> int:
        return int(self.memory[r.AL_STATUS]) & r.AL_STATE_MASK

    def power_on(self) -> None:
        self.memory[:] = 0
        self.memory[[r.FMMU_COUNT_REGISTER, r.SM_COUNT_REGISTER, r.RAM_SIZE]] = 8, 8, 8
        self.memory[r.FEATURES] = r.FEATURE_DC | r.FEATURE_DC_64_BIT
        self.memory[r.AL_STATUS] = r.AL_INIT
        self._outputs = bytes(self.size)

    def on_event(self, kind: int, now_ns: int) -> None:
        self.events.append((kind, now_ns))
        if kind == r.EVENT_AL_CONTROL:
            self.memory[r.AL_STATUS] = self.memory[r.AL_CONTROL] & r.AL_STATE_MASK

    def tick(self, now_ns: int) -> int:
        if self.due_ns <= now_ns:
            self.ticks.append(now_ns)
            self.due_ns = r.NEVER_NS
        return self.due_ns

    def latch_outputs(self) -> bool:
        self._outputs = self.memory[0x1100 : 0x1100 + self.size].tobytes()
        return bool(self.memory[r.AL_STATUS] == r.AL_OP)

    def publish_inputs(self) -> None:
        self.memory[0x1400 : 0x1400 + self.size] = list(self._outputs)

    def emergency(self, code: int, register: int, data: bytes = b"") -> None:
        self.events.append((-code, register))

    def raise_al_error(self, code: int, fall_to: int) -> None:
        self.memory[r.AL_STATUS] = fall_to | r.AL_ERROR
        self.memory[r.AL_STATUS_CODE : r.AL_STATUS_CODE + 2] = [code & 0xFF, code >> 8]
