"""AL states of a slave (ETG.1000.6) and its AL status register."""

from collections.abc import Callable
from dataclasses import dataclass

INIT, PREOP, BOOT, SAFEOP, OP = 1, 2, 3, 4, 8
STATE_NAMES = {0: "not there", INIT: "INIT", PREOP: "PRE-OP", BOOT: "BOOT", SAFEOP: "SAFE-OP", OP: "OP"}


@dataclass(frozen=True)
class AlStatus:
    """AL status of a slave."""

    state: int
    error: bool = False
    code: int = 0

    def text(self, code_text: Callable[[int], str]) -> str:
        """Return state and error as text."""
        name = STATE_NAMES.get(self.state, f"state {self.state}")
        if not self.error and not self.code:
            return name
        return f"{name}, AL status 0x{self.code:04X} ({code_text(self.code)})"
