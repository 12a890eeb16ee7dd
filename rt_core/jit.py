"""The one place that decides how numba compiles.

`jit` keeps IEEE semantics, so that a NaN stays visible.  `kernel` lets LLVM reorder sums and fuse
multiply-adds, which is what vectorises reductions, and still propagates NaN and infinity.
Both release the GIL and cache on disk: a second start must not compile again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])

_REORDER = {"reassoc", "contract", "nsz", "arcp"}


def jit(function: F) -> F:
    """Compile `function` with strict IEEE arithmetic, also where a `kernel` calls it.

    Unless told, numba hands the caller's `fastmath` down to what it calls.
    """
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=False)(function))


def kernel(function: F) -> F:
    """Compile `function` with reassociated sums and fused multiply-adds; NaN still propagates."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_REORDER)(function))
