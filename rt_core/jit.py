"""The one place that decides how numba compiles.

`jit` keeps IEEE semantics, so that a NaN stays visible.  `kernel` lets LLVM reorder sums and fuse
multiply-adds, which is what vectorises reductions, and still propagates NaN and infinity.
Both release the GIL and cache on disk: a second start must not compile again.

A `kernel` is always inlined into what calls it.  Left to LLVM, a call from another function may reach one of several
copies, each with its sums in another order, and which one depends on whether the code was compiled or came from the
cache: the last bits of a result would differ from the first start to the second.

Numba renews a cached function when its own file changes, but not when a function or a constant that it
takes from another file does: the old code would go on inside the new.  The cache is therefore tied to
the sources of all modules that the function's own module imports, directly or through others; it is kept by
`rt_core.kernel_cache`, which notices damage.  What counts is what the sources say, not when they were written or where
they are: compiled code may be taken along into another clone, which asks for it only if its sources are the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from rt_core.kernel_cache import KernelCache

F = TypeVar("F", bound=Callable[..., Any])

_IMPORT = re.compile(r"^[ \t]*import[ \t]+((?:\\\n|[^\n#;])+)", re.MULTILINE)
_IMPORT_FROM = re.compile(
    r"^[ \t]*from[ \t]+(\.*)[ \t]*([\w.]*)[ \t]+import[ \t]*(\([^)]*\)|(?:\\\n|[^\n#;])+)", re.MULTILINE
)
_NO_NAME = re.compile(r"#.*|[()\\]")
_REORDER = {"reassoc", "contract", "nsz", "arcp"}


@lru_cache
def imported_sources(file: Path) -> frozenset[Path]:
    """Files beside its own package that `file` imports, not counting what they import themselves.

    Lines of a text that look like an import count too, which does no harm: to parse all files would take a second of
    every start.
    """
    root = _above_its_package(file)
    text = file.read_text(encoding="utf-8")
    paths = [root.joinpath(*name.split(".")) for names in _IMPORT.findall(text) for name in _names(names)]
    for dots, module, names in _IMPORT_FROM.findall(text):
        origin = file.parents[len(dots) - 1] if dots else root
        module_path = origin.joinpath(*module.split(".")) if module else origin
        paths += [module_path, *(module_path / name for name in _names(names))]
    candidates = (f for path in paths for f in (path.parent / f"{path.name}.py", path / "__init__.py"))
    return frozenset(f for f in candidates if f.is_file())


def _above_its_package(file: Path) -> Path:
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _names(listed: str) -> list[str]:
    """Names of an import, without what they are called here."""
    return [name.split()[0] for name in _NO_NAME.sub(" ", listed).split(",") if name.strip()]


@lru_cache
def sources_digest(file: Path) -> str:
    """Digest of `file`, of all files beside its package that it depends on, and of this one."""
    depends: set[Path] = set()
    open_ends = {file, Path(__file__).resolve()}
    while open_ends:
        depends |= open_ends
        open_ends = {f for end in open_ends for f in imported_sources(end)} - depends
    digest = hashlib.sha256()
    for name, source in sorted((f.relative_to(_above_its_package(f)).as_posix(), f) for f in depends):
        digest.update(name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _tie_to_sources(dispatcher: Any, function: Callable[..., Any]) -> None:
    cache = getattr(dispatcher, "_cache", None)
    base = getattr(getattr(cache, "_impl", None), "filename_base", None)
    if cache is None or base is None or not hasattr(cache, "_cache_file"):
        return  # compiled code is off, or numba keeps its cache differently
    digest = sources_digest(Path(function.__code__.co_filename).resolve())
    cache._cache_file = KernelCache(Path(cache.cache_path), base, (numba.__version__, digest))


def jit(function: F) -> F:
    """Compile `function` with strict IEEE arithmetic, also where a `kernel` calls it.

    Unless told, numba hands the caller's `fastmath` down to what it calls.
    """
    dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=False)(function)
    _tie_to_sources(dispatcher, function)
    return cast(F, dispatcher)


def kernel(function: F) -> F:
    """Compile `function` with reassociated sums and fused multiply-adds; NaN still propagates."""
    dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_REORDER, forceinline=True)(function)
    _tie_to_sources(dispatcher, function)
    return cast(F, dispatcher)
