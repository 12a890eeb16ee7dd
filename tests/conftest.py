"""What all tests share: one thread for numerics, Hypothesis profiles, the real recordings, a guard against leaks."""

from __future__ import annotations

import os
import re
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

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / ".ci"))
from stalls import starved  # noqa: E402

GRACE_S = 2.0
STARVED = "starved"
#: When the present try of a test began, on CLOCK_MONOTONIC [s]; whether one failed while the machine was there.
BEGAN = pytest.StashKey[float]()
FAILED = pytest.StashKey[bool]()
#: Where tests put a master and drives on a virtual cable, or a driver and a PLC on loopback, in real time.
BUS = (
    "drivers/ads/test_*.py",
    "drivers/ethercat/test_*.py",
    "ethercat/test_server.py",
    "ethercat/test_services.py",
    "ethercat/test_peers.py",
    "service/test_ethercat_*.py",
    "service/test_ads_*.py",
    "plc/test_peers.py",
    "plc/test_pyads.py",
    "plc/test_server.py",
)
#: Where tests run whole daemons in real time, and want the machine for themselves.
DAEMON = (
    "dashboard/test_browser.py",
    "dashboard/test_http.py",
    "deploy/test_sandbox.py",
    "deploy/test_service.py",
    "service/test_beyond_loopback.py",
    "service/test_breakaway_daemon.py",
    "service/test_change_events.py",
    "service/test_commission_*.py",
    "service/test_daemon.py",
    "service/test_demo.py",
    "service/test_drift_*.py",
    "service/test_elastic_daemon.py",
    "service/test_fuzz_daemon.py",
    "service/test_guiding_daemon.py",
    "service/test_hostile.py",
    "service/test_http_daemon.py",
    "service/test_http_start.py",
    "service/test_jobs_commands.py",
    "service/test_jobs_daemon.py",
    "service/test_jobs_page.py",
    "service/test_keyed_daemon.py",
    "service/test_memory.py",
    "service/test_metrics_daemon.py",
    "service/test_real_replay.py",
    "service/test_restart.py",
    "service/test_run_*.py",
    "service/test_soak.py",
    "service/test_torque_range.py",
    "service/test_transport_faults.py",
    "service/test_tutorial.py",
    "service/test_wall_clock.py",
    "service/test_windows.py",
    "temperature/test_replay.py",
)

#: Where tests wait for processes of their own, if not in real time.
PROCESSES = (
    "bridge/test_foxglove.py",
    "deploy/test_install.py",
    "deploy/test_units.py",
    "doctor/test_cycle.py",
    "doctor/test_command.py",
    "drivers/test_recordings_doc.py",
    "drivers/test_recovery.py",
    "jobs/test_*.py",
    "plc/test_*.py",
    "service/test_commands.py",
    "service/test_realtime.py",
    "service/test_stream_faults.py",
    "sim/test_simulated_driver.py",
    "test_examples.py",
)
#: What shows once more, on another arm, seed or fault, what another test shows: for `make soak`, not for each change.
SOAK = re.compile(
    r"calibration/test_random_arms.py::test_random_arms\[[2-9]0\]"
    r"|calibration/test_points.py::test_few_poses_in_a_test_socket_do_not_flatter\[(2|15)"
    r"|calibration/test_points.py::test_a_ball_in_sockets_gives_the_arm"
    r"|calibration/test_bad_input.py::(test_units\[(1.0|57)|test_good_measurements_raise_no_doubt)"
    r"|calibration/test_verdict.py::test_data_of_another_kind_are_not_explained\[(sign|millimetres)"
    r"|batch/test_coverage.py::test_batch_and_online_intervals_hold_the_truth"
    r"|batch/test_uncertainty.py::test_intervals_cover_as_often_as_they_say\[(white|filtered)"
    r"|calibration/test_diagnosis.py::test_degrees_from_a_station"
    r"|control/test_guiding.py::test_full_friction_compensation_asked_for_does_not_limit_cycle\[(.*-1-(ideal|coarse)|.*-1.0-)"
    r"|control/test_guiding.py::test_with_a_payload_wrong_by_a_fifth.*\[(0-2.4|[12]-|3-1.6)"
    r"|control/test_guiding.py::test_an_error_above_the_friction_margin.*\[9\]"
    r"|control/test_guiding.py::test_it_hovers_at_twenty_poses"
    r"|control/test_energy.py::test_no_energy_comes_from_the_controller\[ideal-.-arm[79]\]"
    r"|control/test_identified_model.py::test_it_hovers_and_can_be_guided\[[1-9]"
    r"|elastic/test_(online_)?coverage.py"
    r"|jobs/test_dask.py::test_(a_run_ends_at_its_limits|a_failure_of_other_code|runs_and_checks_end_on_a_worker_that)"
    r"|jobs/test_held.py::test_no_model_comes"
    r"|jobs/test_reidentify.py::test_(by_schedule|a_report_survives)"
    r"|jobs/test_runner.py::test_the_run_takes_little_and_stops_when_told"
    r"|jobs/test_trouble.py::test_a_queue_that_is_damaged_while_it_is_in_use"
    r"|jobs/test_kinds.py::test_identify_is_the_command\[stribeck2-parameters[45]"
    r"|online/test_soak.py::(test_300_000_frames|test_other_arms_and_joints\[arm[79]\])"
    r"|calibration/test_random_arms.py::test_random_arms\[10\]"
    r"|calibration/test_verdict.py::test_a_joint_that_says_something_else_is_named\[(2|6)"
    r"|calibration/test_verdict.py::test_one_test_pose.*\[0.002\]"
    r"|calibration/test_uncertainty.py::test_errors_that_last_for_many_poses_are_covered\[False\]"
    r"|commissioning/test_friction_law.py::test_intervals_hold_where_six_points_scatter"
    r"|control/test_guiding.py::test_full_friction_compensation.*dq-(0.9-2-(coarse|noisy)|1.2-2-(ideal|coarse)|0.9-1)"
    r"|control/test_guiding.py::test_a_hand_moves_it.*\[4-"
    r"|control/test_energy.py::test_no_energy_comes_from_the_controller\[(noisy-1|ideal-2)-"
    r"|ethercat/test_datalink.py::test_equal_to_the_plain_slave\[(6|9|13|2[5-9]|3[0-9])\]"
    r"|excitation/test_gradient_search.py::test_limits_are_kept.*\[(slides-(condition|d_optimal)|two-(d_optimal|e_optimal))-False\]"
    r"|jobs/test_calibrate_kind.py::test_the_same_job_gives_the_same_bytes"
    r"|jobs/test_repeat.py::test_(a_model_and_a_recording\[payload|a_part_and_all_parts)"
    r"|jobs/test_salvage.py::test_what_is_outside_of_the_damage_comes_back\[.*-[23]\]"
    r"|model/test_friction.py::test_online_with_the_right_constants"
    r"|nonlinear/test_compressed.py::test_costs_are_the_literal_ones\[.*-arm[12]\]"
    r"|online/test_residual_watch.py::test_(run_lengths_are_those_of_a_simulation\[1.(0-2|25)|false_alarms.*\[2.0)"
    r"|physical/test_fit.py::test_a_poor_motion_carries_over"
    r"|service/test_commands.py::test_replay_of_what_cannot_be_replayed\[extra5"
    r"|service/test_excite_command.py::test_periods_of_an_earlier_motion_count"
    r"|service/test_identify_commands.py::test_wrong_mounting_direction\[(microgravity|-x)-arm7\]"
    r"|service/test_real_methods.py::test_friction_of_one_joint_at_three_speeds\[coulomb_viscous\]"
    r"|batch/test_robust.py::test_bursts_in_the_torque_of_a_nine_joint_arm"
    r"|physical/test_payload.py::test_intervals_hold_the_truth\[arm7\]"
    r"|physical/test_real.py::test_lwr4_with_each_prior\[kuka_lwr4_(gaz|cogimon)\]"
    r"|physical/test_turned_torque.py::.*\[(un)?known-[2-5]\]"
    r"|physical/test_real.py::test_tx40_with_coupled_wrist"
    r"|service/test_drift_story.py"
    r"|service/test_breakaway_daemon.py::test_replay_tells_it"
    r"|ethercat/test_peers.py::test_kickcat_goes_on_when_a_ring_breaks"
    r"|service/test_commission_payload.py::test_torque_constants"
    r"|service/test_demo.py::test_a_short_run"
    r"|service/test_elastic_arm_command.py::test_auto_chooses"
    r"|service/test_elastic_command.py::test_online_estimate_ends"
    r"|service/test_jobs_commands.py::test_an_arm_is_identified_again"
    r"|service/test_commission_rehearsal.py::test_(8|9)_"
    r"|service/test_payload_command.py::test_intervals_(of_poor_motions_hold|hold)_the_truth"
    r"|service/test_real_replay.py::.*staubli"
    r"|service/test_identify_commands.py::test_wrong_mounting_direction\[.*-space6\]"
    r"|service/test_identify_commands.py::test_torque_channel_without_signal\[arm7-"
    r"|service/test_real_data_commands.py::test_wrong_mounting_direction\[(staubli_tx40-\+y|kuka_lwr4-ceiling|franka_panda--x)\]"
    r"|service/test_real_data_commands.py::test_torque_channel_without_signal\[noise-"
)

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
    """Mark tests on real recordings, on a bus and of daemons, so that `-m "not bus"` and the like leave them out.

    Those of a soak are there only if THETAD_SOAK is set.
    What runs in real time fails where the machine takes its processors away for long: it gets two more tries.
    """
    for item in items:
        for marker, patterns in (("bus", BUS), ("daemon", DAEMON)):
            if any(item.path.match(f"tests/{pattern}") for pattern in patterns):
                item.add_marker(marker)
                item.add_marker(pytest.mark.flaky(reruns=2))
        if any(item.path.match(f"tests/{pattern}") for pattern in PROCESSES):
            item.add_marker("processes")
        if "data_dir" in getattr(item, "fixturenames", ()):
            item.add_marker("real_data")
        if SOAK.search(item.nodeid):
            item.add_marker("soak")
    if not os.environ.get("THETAD_SOAK"):
        left_out = [item for item in items if item.get_closest_marker("soak")]
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Take note of when a try begins."""
    item.stash[BEGAN] = time.monotonic()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note in the results if the machine was elsewhere in each try of a test that failed and waits for others.

    THETAD_STALLS names the file of .ci/stall_watch.py; without it nothing is noted.
    """
    report = yield
    stalls = os.environ.get("THETAD_STALLS")
    if not stalls or not any(item.get_closest_marker(marker) for marker in ("bus", "daemon", "processes")):
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
