"""Who moves how far: unattended a joint whose scale nobody knows goes a tenth, and no arm begins from elsewhere."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import load_robot, robot_from_source
from rt_core.excitation.fourier import FourierSeries
from rt_core.types import FloatArray
from service.commission.commissioning import CommissionResult
from service.commission.errors import CommissionError, StepFailedError
from service.commission.report import commission_html
from service.commission.settings import CommissionSettings
from service.commission.steps._design import parameters
from service.commission.steps._friction import FRICTION
from service.commission.steps._run import slower
from service.commission.steps._signals import SIGNALS
from service.commission.steps.joints import JOINTS
from service.io.trajectory_file import Trajectory
from service.jobs.kinds import find_kind
from tests.lab.daemon.commission_bench import Bench, context

ARM7 = load_robot("arm7")
HERE = np.array([0.3, 0.5, -0.3, -0.6, 0.4, 0.5, 0.2])
WAY = CommissionSettings().small_rad
TENTH = 0.1 * WAY + 1e-6


def yes(_question: str) -> bool:
    return True


@pytest.mark.parametrize("joints", [[0], range(7)])
def test_unattended_a_scale_that_command_and_position_share_ends_at_the_tenth(joints: Any, tmp_path: Path) -> None:
    """Degrees for radians; the first axis is vertical, so that gravity says nothing of it."""
    scale = np.ones(7)
    scale[list(joints)] = 180.0 / np.pi
    bench = Bench(ARM7, HERE, tmp_path, scale=scale)
    with pytest.raises(StepFailedError) as caught:
        JOINTS.run(context(bench, None))
    assert (bench.reached[list(joints)] < TENTH).all()
    if list(joints) == [0]:
        assert "no one has seen" in str(caught.value)
        assert "joint_1" in str(caught.value)


def test_unattended_a_torque_of_the_wrong_sign_is_named_at_the_tenth(tmp_path: Path) -> None:
    """Gravity says nothing of how far the first axis goes, so that there is no longer way to tell it by."""
    bench = Bench(ARM7, HERE, tmp_path, torque_signs=np.array([-1.0, *np.ones(6)]))
    with pytest.raises(StepFailedError, match=r"joint_1: .* friction would drive the joint"):
        JOINTS.run(context(bench, None))
    assert 0.0 < bench.reached[0] < TENTH
    assert len(bench.moves) == 1


def test_unattended_a_joint_that_friction_holds_over_the_tenth_is_not_called_wrong(tmp_path: Path) -> None:
    bench = Bench(ARM7, HERE, tmp_path, held=[0])
    with pytest.raises(StepFailedError, match="no one has seen which way and how far joint_1") as caught:
        JOINTS.run(context(bench, None))
    verdicts = [check["verdict"] for check in caught.value.result["checks"] if check["joint_name"] == "joint_1"]
    assert verdicts
    assert set(verdicts) == {"cannot_tell"}


@pytest.mark.parametrize(("distance", "start"), [(0.0005, -1.0), (0.002, 1.0), (0.004, 0.0)])
def test_unattended_friction_that_does_not_slide_yet_is_no_fault_of_the_arm(
    distance: float, start: float, tmp_path: Path
) -> None:
    """It changes along the tenth by far more than gravity does."""
    with pytest.raises(StepFailedError, match="no one has seen") as caught:
        JOINTS.run(context(Bench(ARM7, HERE, tmp_path, slip=(distance, start)), None))
    assert not [check for check in caught.value.result["checks"] if check["verdict"] == "wrong"]


@pytest.mark.slow
def test_an_arm_that_somebody_has_seen_goes_the_whole_way_unattended_while_its_drives_stay(tmp_path: Path) -> None:
    bench = Bench(ARM7, HERE, tmp_path)
    everyone = [f"joint_{k}" for k in range(1, 8)]
    assert JOINTS.run(context(bench, yes))[1]["seen"] == everyone
    bench.reached[:] = 0.0
    assert JOINTS.run(context(bench, None, again_from="joints"))[1]["seen"] == everyone
    np.testing.assert_allclose(bench.reached, WAY, rtol=1e-3)
    with pytest.raises(CommissionError, match=r"\[arm.driver\] of bench has changed.*--from signals"):
        context(bench, None, drives="def", again_from="joints")
    assert context(bench, None, drives="def", again_from="signals").folder.seen() == []
    JOINTS.run(context(bench, yes, drives="def"))
    here = context(bench, lambda question: "joint_2 move" not in question, drives="def", again_from="signals")
    with pytest.raises(StepFailedError, match="joint_2: another joint moved"):
        JOINTS.run(here)
    assert here.folder.seen() == ["joint_1", *(f"joint_{k}" for k in range(3, 8))]


# ------------------------------------------------------------ from where it begins


def swept(bench: Bench, ask: Any, moved: FloatArray) -> dict[str, Any]:
    """Sweep for friction, while somebody moves the arm before the first answer."""
    asked: list[str] = []

    def answer(question: str) -> bool:
        if not asked:
            bench.here += moved
        asked.append(question)
        return bool(ask(question))

    here = context(bench, answer)
    here.folder.write("joints", "done", "", 1.0, {"posture": HERE.tolist()})
    return FRICTION.run(here)[1]


def test_an_arm_that_is_moved_before_the_answer_stays(tmp_path: Path) -> None:
    bench = Bench(ARM7, HERE, tmp_path)
    with pytest.raises(StepFailedError, match=r"joint_4 has gone 28\.6 degrees since") as caught:
        swept(bench, yes, np.eye(7)[3] * 0.5)
    assert (bench.moves, caught.value.result["recordings"]) == ([], [])
    bench = Bench(ARM7, HERE, tmp_path / "played")  # brakes may have play
    swept(bench, yes, np.full(7, 0.004))
    assert len(bench.moves) == len(CommissionSettings().speeds)


# ------------------------------------------------------------ what is known ahead, and units


def test_a_run_that_takes_too_long_is_known_before_anything_moves(tmp_path: Path) -> None:
    bench = Bench(ARM7, HERE, tmp_path)
    SIGNALS.run(context(bench, yes))
    bench.permit_max_s = 100.0
    with pytest.raises(StepFailedError, match=r"permit for 120 s.*permit_max_s = 100 s.*--periods"):
        SIGNALS.run(context(bench, yes))
    bench.permit_max_s = 3600.0
    here = context(bench, yes)
    here.settings = replace(here.settings, period_s=133.0)
    SIGNALS.run(here)
    here.settings = replace(here.settings, period_s=134.0)  # thrice as long at first, of 500 cycles a second
    with pytest.raises(StepFailedError, match=r"takes 402 s, and bench can check at most 400 s ahead.*--first-speed"):
        SIGNALS.run(here)


def test_an_arm_whose_rate_is_no_whole_number(tmp_path: Path) -> None:
    """As behind a PLC whose task runs every 3 ms."""
    bench = Bench(ARM7, HERE, tmp_path)
    bench.rate_hz = 1e9 / 3_000_000
    here = context(bench, yes)
    assert SIGNALS.run(here)[1]["nominal_hz"] == bench.rate_hz
    JOINTS.run(here)
    swept(bench, yes, np.zeros(7))
    period_s = parameters(here)["period_s"]
    assert find_kind("excite").read(parameters(here))
    assert abs(period_s - 10.0) < 0.02
    series = FourierSeries(1.0 / period_s, HERE, np.zeros((7, 5)), np.zeros((7, 5)))
    designed = Trajectory(tuple(here.names), here.units, series=series)
    assert designed.cycles(1.0 / bench.rate_hz) == 3332
    assert slower(designed, 1.0 / 3.0, here.rate_hz).cycles(1.0 / bench.rate_hz) == 9996
    here = context(Bench(ARM7, HERE, tmp_path / "other"), yes)
    assert (parameters(here)["period_s"], "rate_hz" in parameters(here)) == (10.0, False)


def test_forces_of_a_slide_are_newtons(tmp_path: Path) -> None:
    source = dict(load_robot("emps").source)
    source["joint"] = [source["joint"][0] | {"lower": -0.2, "upper": 0.4, "velocity": 0.3}]
    robot = robot_from_source(source)
    here = context(Bench(robot, np.array([0.1]), tmp_path), yes)
    found = JOINTS.run(here)[1]
    texts = [check["text"] for check in found["checks"]]
    assert any(" N against the motion" in text for text in texts)
    assert "N*m" not in " ".join(texts)
    joints = here.folder.write("joints", "done", "", 1.0, found)
    friction = here.folder.write("friction", *("done", "", 1.0), FRICTION.run(here)[1])
    assert [row["unit"] for row in friction["joints"]] == ["N"]
    html = commission_html(robot, CommissionResult([joints, friction]), rehearsal=False)
    assert '<td class="text">N</td>' in html
    assert "N*m" not in html
