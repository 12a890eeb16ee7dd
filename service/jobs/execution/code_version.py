"""Code version of a run: the same code on the same machine gives the same bits."""

import hashlib
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_PACKAGES = ("drivers", "rt_core", "service", "sim_backend")
_SUFFIXES = (".py", ".toml", ".html", ".j2")  # templates end in .html.j2
_LIBRARIES = ("numpy", "scipy", "numba")


@cache
def code_version() -> dict[str, str]:
    """Return versions of thetad, Python and the numerical libraries, a hash of all sources, and the processor's name.

    The processor counts: libraries choose their kernels by it, and another order of sums gives other last digits.
    """
    found = {"thetad": _version("thetad"), "sources_sha256": sources_sha256(_ROOT), "python": platform.python_version()}
    found |= {name: _version(name) for name in _LIBRARIES}
    return found | {"cpu": _processor()}


def sources_sha256(root: Path) -> str:
    """Return a hash of names and contents of all sources of the packages under `root`."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        files = (path for path in (root / package).rglob("*") if path.suffix in _SUFFIXES and path.is_file())
        for path in sorted(files, key=lambda path: path.relative_to(root).as_posix()):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    """Return the kernel's name of the processor."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    names = (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name"))
    return next(names, platform.machine())
