"""The two buffers of set positions, as the PLC program reads them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivers.ads.layout import Sizes, checksum
from rt_core.types import FloatArray
from sim_backend.plc._memory import Memory

#: Cycles in which a buffer may still be incomplete.
_TRIES = 20


class SetpointBuffers:
    """Copies buffers of the variable `name` when they have changed, if they are valid.

    `refused` counts invalid ones: of another run, with a wrong checksum, impossible, or for past cycles; `sequence` is
    the highest number of a buffer seen, valid or not.
    """

    def __init__(self, memory: Memory, name: str, sizes: Sizes) -> None:
        self._name, self._sizes = name, sizes
        self.connect(memory)
        self._none: NDArray[Any] = np.zeros((0, sizes.axes))
        self._first = [0, 0]
        self.refused = 0
        self.sequence = 0
        self.forget()

    def connect(self, memory: Memory) -> None:
        """Switch to another memory."""
        names = [f"{self._name}[{k}]" for k in range(2)]
        places = [memory.place(name) for name in names]
        self._views = [memory.array(name) for name in names]
        self._bytes = [memoryview(memory.image)[place.offset : place.offset + place.size] for place in places]

    def take(self, run: int, cycle: int) -> None:
        """Copy the buffers written since the last cycle; invalid ones are tried again for a while."""
        for k, view in enumerate(self._views):
            sequence = int(view["nSequence"])
            if sequence == self._seen[k]:
                continue
            self._points[k] = self._none
            if self._good(k, run, cycle):
                self._points[k] = view["aPoint"][: int(view["nCount"])].copy()
                self._first[k] = int(view["nFirst"])
                self._see(k, sequence)
            elif self._tries[k] + 1 < _TRIES:
                self._tries[k] += 1
            else:
                self._see(k, sequence)
                self.refused += 1

    def point(self, cycle: int) -> FloatArray | None:
        """Return the set positions (axes,) of a cycle, from the newer buffer that has them."""
        for k in (1, 0) if _after(self._seen[1], self._seen[0]) else (0, 1):
            index = cycle - self._first[k]
            if 0 <= index < len(self._points[k]):
                point: FloatArray = self._points[k][index]
                return point
        return None

    def forget(self) -> None:
        """Drop everything written up to now."""
        self._points = [self._none, self._none]
        self._seen, self._tries = [0, 0], [0, 0]
        for k, view in enumerate(self._views):
            self._see(k, int(view["nSequence"]))

    def _see(self, k: int, sequence: int) -> None:
        self._seen[k], self._tries[k] = sequence, 0
        if _after(sequence, self.sequence):
            self.sequence = sequence

    def _good(self, k: int, run: int, cycle: int) -> bool:
        view = self._views[k]
        count = int(view["nCount"])
        return (
            int(view["nStart"]) == run
            and int(view["nSequence"]) % 2 == k
            and 1 <= count <= self._sizes.setpoints
            and int(view["nFirst"]) + count > cycle
            and int(view["nChecksum"]) == checksum(self._bytes[k])
        )


def _after(sequence: int, before: int) -> bool:
    """Return whether a number follows another one, modulo 2^32."""
    return 0 < (sequence - before) % 2**32 < 2**31
