"""Cables of a segment: a line or a ring of slaves, cut where a cable is broken or a slave has no power.

Port 0 of each slave is towards the master's first port, port 1 away from it.  A slave closes a port without a link, so
that frames turn back there.
"""

import numpy as np

from rt_core.types import IntArray
from sim_backend.ethercat import registers as reg

_PORTS = 4


class Topology:
    """Slaves that a frame reaches, in the order in which they process it.

    `head` (m,) if it is sent into the first port, `tail` (k,) if into the far end of a cut ring; none is in both.
    `intact`: the ring is closed, and what goes in at one end comes out at the other.
    """

    def __init__(self, count: int, *, ring: bool) -> None:
        self.count, self.ring = count, ring
        self.powered = [True] * count
        self._cuts: set[int] = set()
        self.head: IntArray
        self.tail: IntArray
        self.update()

    def cut(self, after: int) -> None:
        """Break the cable behind the first `after` slaves."""
        if not 0 <= after <= self.count:
            raise ValueError(f"cut after slave {after}: the segment has {self.count} slaves, take 0 to {self.count}")
        self._cuts.add(after)
        self.update()

    def mend(self) -> None:
        self._cuts.clear()
        self.update()

    def linked(self, gap: int) -> bool:
        """Return whether the cable behind the first `gap` slaves joins two powered ends; the master is powered."""
        if gap in self._cuts or (gap == self.count and not self.ring):
            return False
        before = gap == 0 or self.powered[gap - 1]
        return before and (gap == self.count or self.powered[gap])

    def update(self) -> None:
        """Update `head`, `tail` and `intact` after a change of `powered`."""
        reach = 0
        while reach < self.count and self.linked(reach):
            reach += 1
        self.intact = self.ring and reach == self.count and self.linked(reach)
        first = self.count
        while not self.intact and first > reach and self.linked(first):
            first -= 1
        self.head, self.tail = np.arange(reach), np.arange(first, self.count)

    def dl_status(self, slave: int) -> int:
        """Return register 0x0110 of a slave: links, closed loops and communication of its ports."""
        status = reg.DL_PDI_OPERATIONAL
        linked = (self.linked(slave), self.linked(slave + 1), False, False)
        for port in range(_PORTS):
            status |= reg.DL_LINK[port] | reg.DL_COMMUNICATION[port] if linked[port] else reg.DL_LOOP_CLOSED[port]
        return status
