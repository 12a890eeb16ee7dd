"""The one place that decides how numba compiles.

`jit` keeps IEEE semantics, so that a NaN stays visible.  `kernel` lets LLVM reorder sums and fuse
multiply-adds, which is what vectorises reductions, and still propagates NaN and infinity.
Both release the GIL and cache on disk: a second start must not compile again.

Numba renews a cached function when its own file changes, but not when a function or a constant that it
takes from another file does: the old code would go on inside the new.  The cache is therefore tied to
all sources of the package the function is in, and of this one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])

_REORDER = {"reassoc", "contract", "nsz", "arcp"}
_HERE = Path(__file__).resolve().parent


@lru_cache
def sources_digest(*packages: Path) -> str:
    """Digest of all Python sources below the given folders."""
    digest = hashlib.sha256()
    for package in packages:
        for file in sorted(package.rglob("*.py")):
            digest.update(str(file.relative_to(package)).encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _tie_to_sources(dispatcher: Any, function: Callable[..., Any]) -> None:
    cache = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if cache is None or not hasattr(
        cache, "_source_stamp"
    ):  # compiled code is off, or numba keeps its cache differently
        return
    package = Path(function.__code__.co_filename).resolve().parent
    while (package.parent / "__init__.py").is_file():
        package = package.parent
    cache._source_stamp = (cache._source_stamp, sources_digest(_HERE, package))


def jit(function: F) -> F:
    """Compile `function` with strict IEEE arithmetic, also where a `kernel` calls it.

    Unless told, numba hands the caller's `fastmath` down to what it calls.
    """
    dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=False)(function)
    _tie_to_sources(dispatcher, function)
    return cast(F, dispatcher)


def kernel(function: F) -> F:
    """Compile `function` with reassociated sums and fused multiply-adds; NaN still propagates."""
    dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_REORDER)(function)
    _tie_to_sources(dispatcher, function)
    return cast(F, dispatcher)
