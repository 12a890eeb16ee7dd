"""What all tests share: one thread for numerics, Hypothesis profiles, the real recordings, a guard against leaks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
GRACE_S = 2.0
#: Where tests put a master and drives on a virtual cable, or a driver and a PLC on loopback, in real time.
BUS = (
    "drivers/ads/test_*.py",
    "drivers/ethercat/test_*.py",
    "ethercat/test_server.py",
    "ethercat/test_services.py",
    "ethercat/test_peers.py",
    "service/test_ethercat_*.py",
)

# Before anything imports NumPy: results and timings must not depend on how many cores the machine has.
for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["MPLBACKEND"] = "Agg"

# No deadline: the first example may compile a kernel.  In CI the examples are the same on every run.
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, database=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests on real recordings and on a bus, so that `-m "not real_data"` or `-m "not bus"` leaves them out."""
    for item in items:
        if any(item.path.match(f"tests/{pattern}") for pattern in BUS):
            item.add_marker("bus")
        if "data_dir" in getattr(item, "fixturenames", ()):
            item.add_marker("real_data")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the real recordings; without it the test is skipped."""
    named = os.environ.get("THETAD_DATA")
    folder = Path(named).absolute() if named else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"real recordings not found: {folder} is no folder; set THETAD_DATA to where they are")
    return folder


def _processes() -> set[psutil.Process]:
    """Return the living descendants of this process; Python's own resource tracker stays by design."""
    tracker = getattr(resource_tracker, "_resource_tracker")._pid  # noqa: B009
    return {child for child in psutil.Process().children(recursive=True) if child.pid != tracker}


def _describe(process: psutil.Process) -> str:
    try:
        return f"process {process.pid}: {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return f"process {process.pid}"


@pytest.fixture(scope="module", autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail the module that leaves a child process or a thread behind, and end the processes.

    Fixtures that start processes or threads have module scope at most.
    """
    processes, threads = _processes(), set(threading.enumerate())
    yield
    leaks = []
    for thread in set(threading.enumerate()) - threads:
        thread.join(GRACE_S)
        if thread.is_alive():
            leaks.append(f"thread {thread.name!r}")
    alive = psutil.wait_procs(_processes() - processes, timeout=GRACE_S)[1]
    for process in alive:
        leaks.append(_describe(process))
        process.kill()
    psutil.wait_procs(alive, timeout=GRACE_S)
    if leaks:
        pytest.fail("left behind by this module: " + "; ".join(leaks))
