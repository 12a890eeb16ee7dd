"""Changes of simulated arms: told apart, in time, and with the right figures; what cannot be told is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.detector import drawn, told
from benchmarks.detector_cases import CAPACITY, RATE_HZ, SETTINGS, WATCH_S, Alteration, Outcome, arm, run, watcher
from rt_core.online import OnlineEstimator
from rt_core.online.monitors.change_report import ArmChange


def kinds(outcome: Outcome) -> list[str]:
    return [change.kind for _, change in outcome.told]


@pytest.mark.parametrize("robot", list(CAPACITY))
def test_a_payload_is_reported_weighed_and_missed_when_it_is_gone(robot: str) -> None:
    mass, released_s = 0.1 * CAPACITY[robot], WATCH_S + 25.0
    outcome = run(robot, 11, [Alteration("payload", mass, at_s=WATCH_S + 0.2, until_s=released_s)], released_s + 4.0)
    assert kinds(outcome) == ["change", "payload_attached", "change", "payload_released"]
    (_, alarm), (told_s, attached), _, (gone_s, released) = outcome.told
    assert told_s - WATCH_S - 0.2 < 3.0
    assert abs(alarm.data["since"] - 60.0 - WATCH_S - 0.2) < 1.5
    first = attached.data["payload"]["mass"]
    assert first["status"] == "determined"
    assert abs(first["value"] / mass - 1.0) < 0.3
    assert gone_s - released_s < 3.0
    assert released.data["payload"] is None
    assert released.data["change"] == pytest.approx(-mass, rel=0.2)
    assert outcome.detector.payload() is None
    assert outcome.detector.invalid_reason == ""


@pytest.mark.parametrize("robot", list(CAPACITY))
def test_the_mass_is_right_after_20_s(robot: str) -> None:
    mass = 0.1 * CAPACITY[robot]
    outcome = run(robot, 12, [Alteration("payload", mass)], WATCH_S + 20.5)
    found = outcome.detector.payload()
    assert found["mass"]["value"] == pytest.approx(mass, rel=0.05)
    assert found["mass"]["std"] < 0.05 * mass
    for figure, value in zip(found["centre_of_mass"], (0.01, -0.02, 0.08), strict=True):
        if figure["status"] == "undetermined":
            assert figure["value"] is figure["std"] is figure["lower"] is figure["upper"] is None
        else:
            assert abs(figure["value"] - value) < 4.0 * figure["std"] + 0.005
    assert "payload" in outcome.detector.invalid_reason


def test_friction_and_sensors_are_separated() -> None:
    """None as what it is not, and at most one of six as ambiguous, with what it may be."""
    answers = []
    for seed in range(6):
        robot, alteration = drawn(seed)
        outcome = run(robot, 1000 + seed, [alteration], alteration.at_s + 22.0)
        joint = arm(robot)[0].joints[alteration.joint].name
        found = outcome.first("change")
        answers.append(told(outcome, alteration, joint))
        assert answers[-1] != "wrong", (seed, found[1].text)
        if answers[-1] == "ambiguous":
            assert len(found[1].data["candidates"]) > 1
        elif alteration.what == "sensor_gain":
            error = abs(found[1].data["change"] - alteration.size)
            assert error < 4.0 * found[1].data["std"] + 0.05 * abs(alteration.size)
            assert joint in outcome.detector.invalid_reason
    assert answers.count("ambiguous") <= 1, answers


def test_what_is_not_told_or_of_another_joint_is_wrong() -> None:
    alteration = Alteration("friction", 1.5, 1)
    said = ArmChange("friction_changed", "", {"joints": ["joint_2"]})
    outcome = Outcome(
        [(50.0, ArmChange("change", "", {}))], watcher(OnlineEstimator(arm("space6")[0], SETTINGS, RATE_HZ))
    )
    assert told(outcome, alteration, "joint_2") == "wrong"
    for change, joint, answer in (
        (said, "joint_2", "right"),
        (said, "joint_3", "wrong"),
        (replace(said, kind="ambiguous"), "joint_3", "ambiguous"),
        (replace(said, kind="sensor_fault"), "joint_2", "wrong"),
    ):
        outcome.told[1:] = [(51.0, change)]
        assert told(outcome, alteration, joint) == answer


def test_a_sensor_that_recovers_and_one_with_an_offset() -> None:
    until_s = WATCH_S + 55.0
    outcome = run("space6", 13, [Alteration("sensor_gain", 0.2, 1, until_s=until_s)], until_s + 22.0)
    assert kinds(outcome) == ["change", "sensor_fault", "change", "sensor_recovered"]
    assert outcome.detector.report()["sensor_faults"] == []
    outcome = run("space6", 14, [Alteration("sensor_offset", 4.0, 2)], WATCH_S + 22.0)
    assert kinds(outcome) == ["change", "sensor_fault"]
    told = outcome.told[1][1]
    assert (told.data["cause"], told.data["joints"]) == ("sensor_offset", ["joint_3"])
    assert told.data["change"] == pytest.approx(4.0, rel=0.1)


def test_friction_that_grows_slowly_is_reported_as_that() -> None:
    outcome = run("space6", 15, [Alteration("friction", 1.6, 1, ramp_s=40.0)], WATCH_S + 40.0)
    assert kinds(outcome)[:2] == ["change", "friction_drift"]
    assert outcome.told[1][1].data["joints"] == ["joint_2"]


def test_a_joint_whose_torque_is_mostly_friction_leaves_it_open() -> None:
    """The wrist alone moves, and its sensor shows a little more: more friction looks the same."""
    outcome = run("arm7", 16, [Alteration("sensor_gain", 0.05, 6)], WATCH_S + 25.0, held=range(6))
    assert kinds(outcome) == ["change", "ambiguous"]
    candidates = [(c["cause"], c["joint"]) for c in outcome.told[1][1].data["candidates"]]
    assert ("sensor_gain", "joint_7") in candidates
    assert ("friction", "joint_7") in candidates
    assert outcome.told[1][0] - WATCH_S > 15.0  # of motion, in which it might have been told


def test_a_standing_arm_shows_nothing() -> None:
    outcome = run("space6", 17, [Alteration("payload", 2.0)], WATCH_S + 10.0, held=range(6))
    assert outcome.told == []
    assert outcome.detector.status == "learning"


def test_an_arm_that_does_not_change_raises_no_alarm() -> None:
    outcome = run("arm7", 18, [], 120.0)
    assert outcome.told == []
    assert outcome.detector.status == "watching"
