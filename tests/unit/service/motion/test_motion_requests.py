"""Who may move a simulated arm, and which runs are refused before anything moves."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from drivers.ads.config import AdsConfig
from drivers.driver import CommandRefusedError
from drivers.ethercat.config import EthercatConfig
from rt_core.safety import PermitError, SafetyError
from rt_core.types import FloatArray
from service.config.arm_tables import SafetyConfig
from service.io.trajectory_file import Trajectory, TrajectoryError
from service.motion._motion_controller import ARMING_S, MotionController
from tests.lab.daemon.motion_bench import MODEL, PERIOD_S, ROBOT, START, Bench, N, series, trajectory


@pytest.fixture
def bench() -> Iterator[Bench]:
    one = Bench()
    yield one
    one.driver.close()


# ---------------------------------------------------------------- who asks


def checked(bench: Bench) -> None:
    """Arm, and have a run checked whose client then says nothing."""
    bench.beats = False
    bench.arm()
    bench.start()
    for _ in range(2000):
        if bench.outcome[0] == "checked":
            return
        bench.turn()
    pytest.fail(str(bench.outcome))


def test_a_client_that_is_gone_during_the_checks_moves_nothing(bench: Bench) -> None:
    checked(bench)
    with pytest.raises(PermitError, match="another run"):
        bench.start()
    with pytest.raises(PermitError, match="under way"):
        bench.controller.arm("b", bench.now, 60.0, bench.driver)
    bench.turns(1100)
    assert bench.outcome == ("refused", "the client has not been heard of for 1 s after the checks")
    assert bench.phase == "armed"
    np.testing.assert_allclose(bench.setpoints(), np.tile(START, (len(bench.frames), 1)), atol=1e-4)
    bench.beats = True
    bench.start(periods=1)  # the permit has not served for a run yet
    bench.until("disarmed")
    assert bench.outcome == ("completed", "")
    bench.turns(200)
    bench.controller.arm("b", bench.now, 60.0, bench.driver)
    bench.controller.heartbeat("a", bench.now)  # its client asks for the outcome
    with pytest.raises(PermitError):
        bench.controller.heartbeat("c", bench.now)


@pytest.mark.parametrize("on_s", [0.0, 0.1])
def test_drives_enabled_by_others_are_switched_off(bench: Bench, on_s: float) -> None:
    """Also drives that are still on their way."""
    bench.driver.enable()
    bench.turns(round(on_s / PERIOD_S))
    bench.controller.stop("disarmed by request", bench.driver)
    assert not bench.driver.enabled  # nobody has to read a frame for it
    bench.stays_off()


@pytest.mark.parametrize("driver", [AdsConfig, EthercatConfig])
def test_an_arm_waits_as_long_as_its_drives_may_take_to_be_on(driver: type[BaseModel]) -> None:
    bounds = [getattr(bound, "le", None) for bound in driver.model_fields["enable_timeout_ms"].metadata]
    assert max(bound for bound in bounds if bound is not None) < 1e3 * ARMING_S


def test_drives_come_to_rest_before_they_are_armed_again(bench: Bench) -> None:
    bench.run()
    bench.controller.off("the drives were switched off by request")
    bench.driver.disable()
    with pytest.raises(CommandRefusedError, match="still stopping"):
        bench.controller.arm("b", bench.now, 60.0, bench.driver)
    bench.stays_off()


def test_a_permit_is_judged_by_the_clock_not_by_simulated_time(bench: Bench) -> None:
    slow = MotionController(MODEL, ROBOT.sha256, SafetyConfig(), PERIOD_S, pace=0.5)
    slow.arm("a", bench.now, 6.0, bench.driver)
    for _ in range(300):
        slow.step(bench.driver.read(0.0), bench.driver, bench.now)
    with pytest.raises(PermitError, match=r"the run takes 10(\.0)? s"):
        slow.start(trajectory(), "a", bench.now, periods=2, hold=False, name="x", changed=False)


# ---------------------------------------------------------------- what is refused ahead


def refused(bench: Bench, what: Trajectory, periods: int = 1) -> str:
    bench.arm()
    try:
        bench.start(what, periods)
    except (SafetyError, TrajectoryError) as error:
        said = str(error)
    else:
        for _ in range(4000):
            bench.turn()
            if bench.outcome[0] != "checking":
                break
        outcome, said = bench.outcome
        assert outcome == "refused"
    assert bench.phase == "armed"
    np.testing.assert_allclose(bench.setpoints(), np.tile(START, (len(bench.frames), 1)), atol=1e-4)
    return said


def table(q: FloatArray, rate_hz: float = 100.0) -> Trajectory:
    return trajectory(series=None, table=q, rate_hz=rate_hz)


def rows(rate_hz: float = 100.0, **changes: Any) -> FloatArray:
    return series(**changes).sample(np.arange(round(2.0 * rate_hz) + 1) / rate_hz)[0]


def with_one(value: float) -> FloatArray:
    q = rows()
    q[5, 0] = value
    return q


def jumping() -> FloatArray:
    q = rows()
    q[120:150, 4] += 0.3
    return q


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (trajectory(series=series(size=2.3, f0_hz=0.2)), "velocity"),
        (trajectory(series=series(size=0.5, f0_hz=4.0)), "acceleration"),
        (trajectory(series=replace(series(), q0=START + 1.6 * np.eye(N)[1])), "joint_2: position"),
        (table(jumping()), "joint_5: its position jumps by 0.3"),
        (table(np.degrees(rows())), "read as degrees"),
        (table(rows()[:110]), "does not end at rest"),
        (table(rows()[40:]), "does not begin at rest"),
        (table(with_one(1e308)), "joint_1: position 1e+308 rad at 0.05 s"),
        (table(rows(), 60.007), "not a whole number of cycles of 1 ms"),
        (table(rows(2000.0), 2000.0), "2000 rows a second"),
        (trajectory(robot="arm7", robot_sha256="0" * 64), "another version"),
    ],
)  # fmt: skip
def test_a_trajectory_that_must_not_be_run(bench: Bench, what: Trajectory, words: str) -> None:
    said = refused(bench, what)
    assert words in said
    assert "where the arm stands" not in said


@pytest.mark.parametrize(
    ("safety", "words"), [({"approach": 1e-5}, "raise safety.approach"), ({"effort_fraction": 0.2}, "torque")]
)
def test_a_start_that_is_too_far_away_for_the_share_and_a_torque_above_its_own(
    safety: dict[str, float], words: str
) -> None:
    assert words in refused(Bench(**safety), trajectory(series=replace(series(), q0=START + 0.3)))


def test_a_period_that_does_not_close_is_run_once_only(bench: Bench) -> None:
    q = rows()
    ramp = np.linspace(0.0, 1.0, len(q))
    q[:, 0] = START[0] + 0.1 * ramp**3 * (10.0 + ramp * (6.0 * ramp - 15.0))
    assert "ends 0.1 rad from where it begins" in refused(bench, table(q), periods=2)
    bench.start(table(q), periods=1)
    bench.until("disarmed")
    assert bench.outcome == ("completed", "")


def test_a_table_is_played_through_its_rows(bench: Bench) -> None:
    bench.run(table(rows()), periods=2)
    begun = len(bench.frames)
    bench.until("disarmed")
    assert bench.outcome == ("completed", "")
    q = bench.setpoints()[begun : begun + 4001]
    np.testing.assert_allclose(q[::10], np.vstack((rows(), rows()[1:])), atol=1e-9)
    bench.commanded_within_limits()
