"""Who moves how far: unattended a joint whose scale nobody knows goes a tenth, and no arm begins from elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import RobotFile, load_robot, robot_from_source
from rt_core.excitation.fourier import FourierSeries
from rt_core.types import FloatArray
from service.commission.commissioning import CommissionResult
from service.commission.errors import CommissionError, StepFailedError
from service.commission.folder import Folder
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


def planar(off_axis: float) -> RobotFile:
    """Two links in a vertical plane that hang at zero; their centres lie `off_axis` [m] beside them."""
    joints = [
        {
            "name": f"joint_{k + 1}", "a": 0.4 * k, "alpha_deg": 90 * (k == 0), "d": 0.0, "theta_deg": -90 * (k == 0),
            "lower": -2.0, "upper": 2.0, "velocity": 2.0, "effort": 60.0,
            "mass": 5.0, "com": [0.25, off_axis, 0.0], "inertia": [0.02, 0.0, 0.02, 0.0, 0.0, 0.02],
        }
        for k in range(2)
    ]  # fmt: skip
    return robot_from_source({"format": 1, "name": "planar", "kinematics": "mdh", "gravity": "floor", "joint": joints})


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
        assert "nobody has seen" in str(caught.value)
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
    with pytest.raises(StepFailedError, match="nobody has seen which way and how far joint_1") as caught:
        JOINTS.run(context(bench, None))
    verdicts = [check["verdict"] for check in caught.value.result["checks"] if check["joint_name"] == "joint_1"]
    assert verdicts
    assert set(verdicts) == {"cannot_tell"}


@pytest.mark.parametrize("start", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("distance", [0.0005, 0.002, 0.004])
def test_unattended_friction_that_does_not_slide_yet_is_no_fault_of_the_arm(
    distance: float, start: float, tmp_path: Path
) -> None:
    """It changes along the tenth by far more than gravity does."""
    with pytest.raises(StepFailedError, match="nobody has seen") as caught:
        JOINTS.run(context(Bench(ARM7, HERE, tmp_path, slip=(distance, start)), None))
    assert not [check for check in caught.value.result["checks"] if check["verdict"] == "wrong"]


def test_unattended_an_arm_that_somebody_has_seen_goes_the_whole_way(tmp_path: Path) -> None:
    bench = Bench(ARM7, HERE, tmp_path)
    found = JOINTS.run(context(bench, yes))[1]
    assert found["seen"] == [f"joint_{k}" for k in range(1, 8)]
    bench.reached[:] = 0.0
    found = JOINTS.run(context(bench, None, again_from="joints"))[1]
    assert found["seen"] == [f"joint_{k}" for k in range(1, 8)]
    np.testing.assert_allclose(bench.reached, WAY, rtol=1e-3)


def test_what_was_seen_of_other_drives_or_is_seen_no_more_does_not_count(tmp_path: Path) -> None:
    bench = Bench(ARM7, HERE, tmp_path)
    JOINTS.run(context(bench, yes))
    with pytest.raises(CommissionError, match=r"\[arm.driver\] of bench has changed.*--from signals"):
        context(bench, None, drives="def", again_from="joints")
    assert context(bench, None, drives="def", again_from="signals").folder.seen() == []
    here = context(bench, lambda question: "joint_2 move" not in question, again_from="signals")
    with pytest.raises(StepFailedError, match="joint_2: another joint moved"):
        JOINTS.run(here)
    assert here.folder.seen() == ["joint_1", *(f"joint_{k}" for k in range(3, 8))]


@pytest.mark.parametrize("signs", [[1.0, 1.0], [-1.0, -1.0]])
def test_mirror_images_of_the_whole_arm_are_not_told_apart(signs: list[float], tmp_path: Path) -> None:
    """Two links on their axis that hang at zero: inverted together they tell the same torques."""
    bench = Bench(planar(0.0), np.array([0.6, 0.5]), tmp_path, np.array(signs))
    with pytest.raises(StepFailedError, match="nobody has seen which way and how far joint_1, joint_2") as caught:
        JOINTS.run(context(bench, None))
    gravity = [check for check in caught.value.result["checks"] if check["check"] == "gravity as described"]
    assert [check["verdict"] for check in gravity] == ["cannot_tell"] * 2
    assert "joint_1, joint_2 inverted" in gravity[0]["text"]


def test_links_beside_their_axes_tell_the_directions(tmp_path: Path) -> None:
    right = Bench(planar(0.2), np.array([0.3, -0.5]), tmp_path)
    found = JOINTS.run(context(right, None))[1]
    assert [c["verdict"] for c in found["checks"] if c["check"] == "gravity as described"] == ["ok"] * 2
    (tmp_path / "mirrored").mkdir()
    with pytest.raises(StepFailedError, match="positive directions of joint and description differ"):
        JOINTS.run(
            context(Bench(planar(0.2), np.array([0.3, -0.5]), tmp_path / "mirrored", np.array([-1.0, -1.0])), None)
        )


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
    assert bench.moves == []
    assert caught.value.result["recordings"] == []


def test_brakes_may_have_play(tmp_path: Path) -> None:
    bench = Bench(ARM7, HERE, tmp_path)
    swept(bench, yes, np.full(7, 0.004))
    assert len(bench.moves) == len(CommissionSettings().speeds)


# ------------------------------------------------------------ what is known ahead, and units


def test_a_run_longer_than_any_permit_is_known_before_anything_moves(tmp_path: Path) -> None:
    bench = Bench(ARM7, HERE, tmp_path)
    SIGNALS.run(context(bench, yes))
    bench.permit_max_s = 100.0
    with pytest.raises(StepFailedError, match=r"permit for 120 s.*permit_max_s = 100 s") as caught:
        SIGNALS.run(context(bench, yes))
    assert "--periods" in str(caught.value)


def test_a_run_that_takes_too_long_to_check_is_known_before_anything_moves(tmp_path: Path) -> None:
    bench = Bench(ARM7, HERE, tmp_path)
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
    designed = Trajectory(here.names_tuple, here.units, series=series)
    assert designed.cycles(1.0 / bench.rate_hz) == 3332
    assert slower(designed, 1.0 / 3.0, here.rate_hz).cycles(1.0 / bench.rate_hz) == 9996
    here = context(Bench(ARM7, HERE, tmp_path / "other"), yes)
    assert (parameters(here)["period_s"], "rate_hz" in parameters(here)) == (10.0, False)


def test_forces_of_a_slide_are_newtons(tmp_path: Path) -> None:
    source = dict(load_robot("emps").source)
    source["joint"] = [source["joint"][0] | {"lower": -0.2, "upper": 0.4, "velocity": 0.3}]
    robot = robot_from_source(source)
    bench = Bench(robot, np.array([0.1]), tmp_path)
    here = context(bench, yes)
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


def test_the_folder_keeps_who_was_seen(tmp_path: Path) -> None:
    folder = Folder(tmp_path, ("joints",))
    assert folder.seen() == []
    assert folder.see("a") == ["a"]
    assert folder.see("b") == ["a", "b"]
    assert folder.see("a", as_described=False) == ["b"] == Folder(tmp_path, ("joints",)).seen()
