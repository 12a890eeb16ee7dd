"""`thetad identify --joints`: elastic, rigid, or what the data call for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drivers.files.recordings.recording import Recording, write_recording
from tests.lab.arms.small_elastic import JOINTS, arm, moved, write_robot
from tests.lab.command_line import thetad
from tests.lab.recordings.real_sets import load_set
from tests.unit.service.reports.test_report import self_contained

SIGNALS = ("--cutoff", 20, "--rate", 100)


@pytest.fixture(scope="module")
def robot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_robot(tmp_path_factory.mktemp("robot"))


@pytest.fixture(scope="module")
def soft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("soft") / "soft.mcap"
    write_recording(path, moved(elastic=True))
    return path


@pytest.fixture(scope="module")
def stiff(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stiff") / "stiff.mcap"
    write_recording(path, moved(elastic=False))
    return path


@pytest.mark.soak
def test_auto_chooses_elastic_joints_and_tells_their_stiffness(soft: Path, robot: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "arm.json", tmp_path / "arm.html"
    done = thetad(
        "identify", soft, "--robot", robot, "--joints", "auto", *SIGNALS, "-o", out, "--report", report, "--json"
    )
    assert done.code == 0, done
    found = done.json
    assert found["joint_model"]["chosen"] == "elastic"
    assert found["comparison"]["elastic"] is True
    written = json.loads(out.read_text())
    assert written["format"] == "thetad-elastic-arm/1"
    assert {k: v for k, v in found.items() if k in written} == written
    dynamics = arm(elastic=True).dynamics
    assert dynamics is not None
    told = [joint["stiffness"] for joint in found["joints"]]
    assert len(told) == JOINTS
    for k, truth in zip(told, dynamics.stiffness, strict=True):
        assert k["value"] == pytest.approx(truth, rel=0.02)
        assert k["status"] == "doubtful", k  # intervals of one joint's fit do not hold here, and are not stated
        assert "no interval" in k["reason"]
        assert not {"std", "lower", "upper"} & set(k)
    assert {p["name"]: p["status"] for p in found["parameters"]}["Ia2"] in ("determined", "doubtful")
    page = report.read_text(encoding="utf-8")
    self_contained(page)
    assert "stiffness joint_2" in page
    assert "beside rigid joints" in page


def test_auto_keeps_rigid_joints_and_their_result(stiff: Path, robot: Path) -> None:
    common = ("identify", stiff, "--robot", robot, *SIGNALS)
    plain, auto = thetad(*common, "--json"), thetad(*common, "--joints", "auto", "--json")
    assert plain.code == auto.code == 0
    ours, theirs = auto.json, plain.json
    choice = ours.pop("joint_model")
    assert choice["chosen"] == "rigid"
    assert "not better beyond chance" in choice["reason"]
    for found in (ours, theirs):
        found.pop("created")
    assert ours == theirs


def test_elastic_joints_that_the_data_do_not_show_are_told_as_that(stiff: Path, robot: Path) -> None:
    done = thetad("identify", stiff, "--robot", robot, "--joints", "elastic", *SIGNALS, "--json")
    assert done.code == 0, done
    found = done.json
    assert all(joint["stiffness"]["value"] is None and joint["stiffness"]["reason"] for joint in found["joints"])
    assert found["verdict"] == "weak_excitation"
    assert any("joint joint_1: rotor and link cannot be told apart" in reason for reason in found["reasons"])
    values = {p["name"]: p["value"] for p in found["parameters"]}
    assert values["Ia1"] is None
    assert values["Ia3"] is not None
    text = thetad("identify", stiff, "--robot", robot, "--joints", "elastic", *SIGNALS)
    assert text.code == 0
    assert "undetermined" in text.out
    assert "not better beyond chance" in text.out


def test_one_encoder_is_rigid_and_refused_where_springs_are_asked_for(data_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "emps.mcap"
    write_recording(path, load_set(data_dir / "emps", "emps.npz", "emps").recording)
    common = ("identify", path, "--robot", "emps")
    plain, auto = thetad(*common, "--json"), thetad(*common, "--joints", "auto", "--json")
    assert plain.code == auto.code == 0
    ours, theirs = auto.json, plain.json
    choice = ours.pop("joint_model")
    assert choice["chosen"] == "rigid"
    assert "no channel q_motor" in choice["reason"]
    for found in (ours, theirs):
        found.pop("created")
    assert ours == theirs
    thetad(*common, "--joints", "elastic").refused("--joints elastic", str(path), "no channel q_motor")


def test_options_that_do_not_go_together_are_refused(soft: Path, robot: Path) -> None:
    done = thetad("identify", soft, "--robot", robot, "--joints", "auto", "--method", "tls")
    done.refused("--method: not with --joints auto")
    done = thetad("identify", soft, "--model", "elastic_joint", "--joint", "1", "--joints", "elastic")
    done.refused("--joints: not for --model elastic_joint")


def changed(recording: Recording, path: Path, **channels: np.ndarray) -> Path:
    write_recording(path, replace(recording, channels=recording.channels | channels))
    return path


def test_encoders_that_are_read_at_different_times_do_not_tell_rotor_from_link(robot: Path, tmp_path: Path) -> None:
    """What a joint moves between two readings would pass for motion of the spring."""
    recording = moved(elastic=True)
    late = np.vstack((recording.channels["q"][:2], recording.channels["q"][:-2]))  # 4 ms
    path = changed(recording, tmp_path / "late.mcap", q=late)
    done = thetad("identify", path, "--robot", robot, "--joints", "elastic", *SIGNALS, "--json")
    found = done.json
    statuses = {p["name"]: p["status"] for p in found["parameters"]}
    assert not {statuses[f"Ia{k + 1}"] for k in range(2)} & {"determined", "weak"}
    assert any("ms apart" in reason or "at one time" in reason for reason in found["reasons"]), found["reasons"]


def test_standstill_and_repeated_frames_are_left_out(robot: Path, tmp_path: Path) -> None:
    recording = moved(elastic=True)
    q = {name: recording.channels[name].copy() for name in recording.channels}
    for values in q.values():
        values[:500] = values[500]
        values[-1] = values[-2]
    done = thetad("identify", changed(recording, tmp_path / "still.mcap", **q), "--robot", robot, "--joints", "elastic",
                  *SIGNALS, "--json")  # fmt: skip
    assert done.code == 0, done
    assert done.json["chosen"] == "elastic"


def test_a_torque_constant_that_nobody_has_given_is_not_one(soft: Path, robot: Path, tmp_path: Path) -> None:
    text = robot.read_text(encoding="utf-8")
    bare = tmp_path / "arm3_elastic.toml"
    bare.write_text("\n".join(line for line in text.splitlines() if "torque_constant" not in line), encoding="utf-8")
    done = thetad("identify", soft, "--model", "elastic_joint", "--joint", "1", "--robot", bare)
    done.refused("--torque-constant: is not given")
    found = thetad("identify", soft, "--robot", bare, "--joints", "elastic", *SIGNALS, "--json").json
    assert all(joint["stiffness"]["value"] is None for joint in found["joints"])
    assert all("is not given" in joint["stiffness"]["reason"] for joint in found["joints"])


def test_doubts_about_the_rigid_model_hold_for_the_elastic_one(robot: Path, tmp_path: Path) -> None:
    """Torque that is late makes any model doubtful, whatever its joints."""
    recording = moved(elastic=True)
    late = {
        name: np.vstack((recording.channels[name][:5], recording.channels[name][:-5])) for name in ("tau", "current")
    }
    path = changed(recording, tmp_path / "late.mcap", **late)
    rigid = thetad("identify", path, "--robot", robot, *SIGNALS, "--json").json
    assert rigid["verdict"] == "doubtful", rigid["reasons"]
    found = thetad("identify", path, "--robot", robot, "--joints", "elastic", *SIGNALS, "--json").json
    assert found["verdict"] == "doubtful"
    assert f"the model with rigid joints is doubtful: {rigid['reasons'][0]}" in found["reasons"]
    assert "determined" not in {p["status"] for p in found["parameters"]}


def test_temperatures_are_those_of_the_recording(robot: Path, tmp_path: Path) -> None:
    recording = moved(elastic=True)
    warm = tmp_path / "arm3_elastic.toml"
    warm.write_text(robot.read_text().replace("[[joint]]", '[model]\nfriction_temperature = "coulomb"\n[[joint]]', 1))
    told = np.full(recording.channels["q"].shape, 25.0)
    path = changed(recording, tmp_path / "warm.mcap", temperature=told)
    done = thetad("identify", path, "--robot", warm, "--joints", "elastic", *SIGNALS, "--json")
    assert done.code == 0, done
    found = done.json
    assert found["temperatures"] == [[25.0] * JOINTS, [25.0] * JOINTS]
    assert any("its temperature changes by 0 K only" in reason for reason in found["reasons"])
    slopes = [p for p in found["parameters"] if p["name"].startswith("alpha")]
    assert len(slopes) == JOINTS
    assert {(p["status"], p["value"]) for p in slopes} == {("undetermined", None)}
