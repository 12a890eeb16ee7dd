"""Decorators that compile functions with numba.

`jit` keeps IEEE semantics, so that a NaN stays visible.  `kernel` lets LLVM reorder sums and fuse multiply-adds, which
vectorises reductions, and still propagates NaN and infinity.  Both release the GIL and cache on disk.

A `kernel` is always inlined into its caller.  Otherwise LLVM may keep several copies of it with sums in different
orders, and a call may reach another copy when the code comes from the cache: the last bits would then differ between
the first start and the second.

Numba renews a cached function when its own file changes, but not when a function or constant from another file does.
The cache is therefore tied to the contents of all modules that the function's module imports, directly or indirectly
(not to their times or places, so that another clone can use it); `rt_core.kernel_cache` keeps it.
"""

import hashlib
import os
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
#: The folder with all packages of the product, in a clone and as installed.
_PRODUCT = Path(__file__).resolve().parent.parent
_REORDER = {"reassoc", "contract", "nsz", "arcp"}


@lru_cache
def imported_sources(file: Path) -> frozenset[Path]:
    """Return the files of the product and of its own package that `file` imports directly.

    Not of the libraries beside an installed package, which would be read at every start.  Found by a regular
    expression: parsing all files would add a second to every start, and a line of text that looks like an import does
    no harm.
    """
    root = _above_its_package(file)
    text = file.read_text(encoding="utf-8")
    paths = [root.joinpath(*name.split(".")) for names in _IMPORT.findall(text) for name in _names(names)]
    for dots, module, names in _IMPORT_FROM.findall(text):
        origin = file.parents[len(dots) - 1] if dots else root
        module_path = origin.joinpath(*module.split(".")) if module else origin
        paths += [module_path, *(module_path / name for name in _names(names))]
    candidates = (f for path in paths for f in (path.parent / f"{path.name}.py", path / "__init__.py"))
    package = root if file.parent == root else root / file.relative_to(root).parts[0]
    own = (f"{package}{os.sep}", f"{_PRODUCT}{os.sep}")
    return frozenset(f for f in candidates if str(f).startswith(own) and f.is_file())


def _above_its_package(file: Path) -> Path:
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _names(listed: str) -> list[str]:
    """Return the names of an import statement without their aliases."""
    return [name.split()[0] for name in _NO_NAME.sub(" ", listed).split(",") if name.strip()]


@lru_cache
def sources_digest(file: Path) -> str:
    """Return the digest of `file`, of all files beside its package that it depends on, and of this one."""
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
        return  # numba is disabled, or keeps its cache differently
    digest = sources_digest(Path(function.__code__.co_filename).resolve())
    cache._cache_file = KernelCache(Path(cache.cache_path), base, (numba.__version__, digest))


def jit(function: F) -> F:
    """Compile `function` with strict IEEE arithmetic, also where a `kernel` calls it.

    By default numba passes the caller's `fastmath` on to its callees.
    """
    dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=False)(function)
    _tie_to_sources(dispatcher, function)
    return cast(F, dispatcher)


def kernel(function: F) -> F:
    """Compile `function` with reassociated sums and fused multiply-adds; NaN still propagates."""
    dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_REORDER, forceinline=True)(function)
    _tie_to_sources(dispatcher, function)
    return cast(F, dispatcher)
