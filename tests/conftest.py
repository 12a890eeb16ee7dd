"""What all tests share: one thread for numerics, Hypothesis profiles, the real recordings, a guard against leaks."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
sys.path.append(str(ROOT / ".ci"))
from stalls import starved  # noqa: E402

from tests.lab.kept import KEPT  # noqa: E402

GRACE_S = 2.0
STARVED = "starved"
#: When the present try of a test began, on CLOCK_MONOTONIC [s]; whether one failed while the machine was there.
BEGAN = pytest.StashKey[float]()
FAILED = pytest.StashKey[bool]()
#: Folders of tests that are markers, too.
KINDS = ("unit", "process", "daemon", "bus", "soak")
#: Fixtures that tests of several folders share.
pytest_plugins = (
    "tests.lab.recordings.fixtures", "tests.lab.jobs.fixtures", "tests.lab.ads.plcs", "tests.lab.ethercat.network",
    "tests.lab.daemon.shared", "tests.lab.daemon.desk",
)  # fmt: skip

# Before anything imports NumPy: results and timings must not depend on how many cores the machine has.
for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["MPLBACKEND"] = "Agg"

# Where a shell runs the tests in the background it has Ctrl-C ignored, by their processes too; some are sent one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the first example may compile a kernel.  In CI the examples are the same on every run.
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, database=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by its folder, so that `-m "not bus"` and the like select.

    Soak tests run only with THETAD_SOAK.
    """
    for item in items:
        kind = item.path.relative_to(TESTS).parts[0]
        if kind in KINDS:
            item.add_marker(kind)
        if "data_dir" in getattr(item, "fixturenames", ()):
            item.add_marker("real_data")
    if not os.environ.get("THETAD_SOAK"):
        left_out = [item for item in items if item.get_closest_marker("soak")]
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Store when a try begins."""
    item.stash[BEGAN] = time.monotonic()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note in the results if the machine was elsewhere in each try of a test that failed and waits for others.

    THETAD_STALLS names the file of .ci/stall_watch.py; without it nothing is noted.
    """
    report = yield
    stalls = os.environ.get("THETAD_STALLS")
    if not stalls or not any(item.get_closest_marker(marker) for marker in ("bus", "daemon", "process")):
        return report
    if report.when == "teardown":
        if report.failed:  # what is left behind is no matter of time
            report.user_properties = [each for each in report.user_properties if each[0] != STARVED]
        return report
    item.user_properties[:] = [each for each in item.user_properties if each[0] != STARVED]
    if report.failed:
        said = starved(Path(stalls), item.stash[BEGAN], time.monotonic())
        item.stash[FAILED] = item.stash.get(FAILED, False) or not said
        if not item.stash[FAILED]:
            item.user_properties.append((STARVED, said))
    return report


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the real recordings; without it the test is skipped."""
    named = os.environ.get("THETAD_DATA")
    folder = Path(named).absolute() if named else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"real recordings not found: {folder} is no folder; set THETAD_DATA to where they are")
    return folder


def _processes() -> set[psutil.Process]:
    """Return the living descendants of this process; Python's own resource tracker and shared daemons may stay."""
    tracker = getattr(resource_tracker, "_resource_tracker")._pid  # noqa: B009
    found: set[psutil.Process] = set()
    for child in psutil.Process().children():
        if child.pid != tracker and child.pid not in KEPT:
            with contextlib.suppress(psutil.NoSuchProcess):
                found |= {child, *child.children(recursive=True)}
    return found


def _describe(process: psutil.Process) -> str:
    try:
        return f"process {process.pid}: {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return f"process {process.pid}"


@pytest.fixture(scope="module", autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail the module that leaves a child process or a thread behind, and end the processes.

    Fixtures that start processes or threads have module scope at most, but for `tests.lab.daemon.shared`.
    """
    processes, threads = _processes(), set(threading.enumerate())
    yield
    leaks = []
    for thread in set(threading.enumerate()) - threads:
        if isinstance(thread, threading._DummyThread):  # of foreign code: it is called alive for ever
            continue
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
