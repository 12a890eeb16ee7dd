"""Compiled `layout.checksum`; a module of its own, because Numba takes long to import."""

from typing import Any

import numpy as np

from rt_core.jit import jit


@jit
def checksum(words: np.ndarray[Any, np.dtype[np.uint32]]) -> np.uint32:
    """Return the checksum of a structure, given as its 32-bit words without the last one."""
    a = np.uint32(0)
    b = np.uint32(0)
    for k in range(words.shape[0]):
        a = np.uint32(a + words[k])
        b = np.uint32(b + a)
    rotated = np.uint32(np.uint32(b << np.uint32(16)) | np.uint32(b >> np.uint32(16)))
    return np.uint32(a ^ rotated)
