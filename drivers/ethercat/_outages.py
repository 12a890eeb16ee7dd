"""What a driver tells of its bus: that it or a slave is away, why as far as is known, and that it is back."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from drivers.ethercat._startup import slave_name, state_problems
from drivers.ethercat.bus.al_status import OP, AlStatus
from drivers.ethercat.bus.bus import Bus
from drivers.ethercat.bus.exchange import SILENCE_NS
from drivers.ethercat.bus.master import status_text
from drivers.ethercat.bus.slave_recovery import RecoveredSlave
from drivers.ethercat.config import EthercatConfig
from drivers.timing import now_ns

#: Period of looking after the interfaces of a silent bus.
_LOOK_NS = 100_000_000


class Outages:
    """Outages of a bus, told by `tell` with kind, subject and text.

    `problem` is that of an interface on which nobody can answer; at `look_ns` it is looked again.
    """

    def __init__(self, bus: Bus, config: EthercatConfig, tell: Callable[[str, str, str], None]) -> None:
        self._bus, self._config, self._tell = bus, config, tell
        self.problem = ""
        self.look_ns = 0
        self._silent_ns = 0  # since when; 0: the bus answers
        self._lost: set[int] = set()  # slaves
        self._open = False  # whether it was told that the ring is
        self._ends: set[int] = set()  # of the turn before

    def look(self, silent: bool) -> None:
        """Note whether the bus is silent; raises `DriverConnectionError` if an interface has to be opened anew."""
        at_ns = now_ns()
        if not silent and self._silent_ns:
            lasted_s = (at_ns - self._silent_ns) * 1e-9
            self._silent_ns, self.look_ns, self.problem = 0, 0, ""
            self._tell("bus_recovered", "bus", f"it answers again, after {lasted_s:.3g} s")
        elif silent and at_ns >= self.look_ns:
            before, self.problem = self.problem, self._bus.interface_problem()
            if self.problem != before or not self._silent_ns:
                kind = "interface_lost" if self.problem else "bus_lost"
                self._tell(kind, "bus", self.problem or "no slave answers: check the cable and the drives' power")
            self._silent_ns, self.look_ns = self._silent_ns or at_ns - SILENCE_NS, at_ns + _LOOK_NS

    def ring(self, ends: AbstractSet[int]) -> None:
        """Note, after each turn, the slaves of a ring with a link on one side only; two turns name both of a break."""
        if self._open and not ends:
            self._tell("ring_closed", "ring", "every slave has a link on both sides again")
            self._open = False
        elif ends and ends == self._ends and not self._open:
            names = " and ".join(slave_name(position, self._config) for position in sorted(ends))
            self._tell("ring_open", "ring", f"no link on one side of {names}: a second break loses drives")
            self._open = True
        self._ends = set(ends)

    def slave(self, position: int, status: AlStatus | None, repaired: RecoveredSlave | None) -> None:
        """Note the AL status of a slave that is being recovered, and the result."""
        if repaired is not None:
            self._lost.discard(position)
            took = f"in OP again after {repaired.duration_ns * 1e-6:.0f} ms; it was {status_text(repaired.cause)}"
            self._tell("slave_recovered", f"slave {position}", f"{slave_name(position, self._config)} is {took}")
        elif needs_recovery(status) and position not in self._lost:
            self._lost.add(position)
            self._tell("slave_lost", f"slave {position}", state_problems({position: status}, self._config))


def needs_recovery(status: AlStatus | None) -> bool:
    """Return whether a slave takes no part, or not without an error; None: no answer."""
    return status is None or status.state != OP or status.error
