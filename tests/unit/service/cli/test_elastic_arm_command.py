"""`thetad identify --joints`: elastic, rigid, or what the data call for."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drivers.files.recordings.recording import Recording, read_recording, write_recording
from service.models.document import ModelFileError, load_model
from service.operations.elastic.file import known_springs
from service.operations.errors import OperationError
from service.operations.validate import validate_model
from tests.lab.arms.small_elastic import arm, moved, write_robot
from tests.lab.command_line import Outcome, thetad
from tests.lab.jobs.job_run import run_here
from tests.unit.service.reports.test_report import self_contained

SIGNALS = ("--cutoff", 20, "--rate", 100)


def identify(recording: Path, robot: Path, joints: str, *more: object) -> Outcome:
    return thetad("identify", recording, "--robot", robot, "--joints", joints, *SIGNALS, *more)


pytestmark = pytest.mark.slow  # the simulated motion that all use


@pytest.fixture(scope="module")
def robot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_robot(tmp_path_factory.mktemp("robot"))


@pytest.fixture(scope="module")
def soft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The joints stand at first, and the last frame is repeated: both are left out."""
    recording, path = moved(elastic=True), tmp_path_factory.mktemp("soft") / "soft.mcap"
    channels = {name: values.copy() for name, values in recording.channels.items()}
    for values in channels.values():
        values[:500] = values[500]
        values[-1] = values[-2]
    return changed(recording, path, **channels)


@pytest.fixture(scope="module")
def stiff(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stiff") / "stiff.mcap"
    write_recording(path, moved(elastic=False))
    return path


def test_auto_chooses_elastic_joints_and_tells_their_stiffness(soft: Path, robot: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "model.yaml", tmp_path / "arm.html"
    found = identify(soft, robot, "auto", "-o", out, "--report", report, "--json").ok().json
    assert found["joint_model"]["chosen"] == "elastic"
    document = load_model(out).document
    assert (document["format"], len(document["elastic"])) == ("thetad-model/2", 3)
    dynamics = arm(elastic=True).dynamics
    for joint, truth in zip(found["joints"], dynamics.stiffness, strict=True):
        k = joint["stiffness"]
        assert k["value"] == pytest.approx(truth, rel=0.02)
        assert k["status"] == "doubtful", k  # intervals of one joint's fit do not hold here, and are not stated
        assert "no interval" in k["reason"]
        assert k["std"] is None
    assert {p["name"]: p["status"] for p in found["parameters"]}["Ia2"] in ("determined", "doubtful")
    page = report.read_text(encoding="utf-8")
    self_contained(page)
    assert "stiffness joint_2" in page


@pytest.fixture(scope="module")
def models(soft: Path, robot: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Elastic and rigid joints, from the first part."""
    folder = tmp_path_factory.mktemp("models")
    for joints, more in (("elastic", ("--lag", 0)), ("rigid", ())):
        identify(soft, robot, joints, "--span", "0:0.6", "-o", folder / f"{joints}.yaml", *more).ok()
    return {joints: folder / f"{joints}.yaml" for joints in ("elastic", "rigid")}


def test_a_model_with_elastic_joints_predicts_unseen_torque_to_the_noise(
    soft: Path, models: dict[str, Path], tmp_path: Path
) -> None:
    elastic, rigid = (thetad("validate", p, soft, "--span", "0.65:1", "--json").ok().json for p in models.values())
    assert elastic["relative_error"] < 0.0037, "the noise is 0.0035"
    assert rigid["relative_error"] > elastic["relative_error"]
    assert elastic["share_fitted"] == 0.0
    recording = read_recording(soft)
    channels = {name: values for name, values in recording.channels.items() if name != "q_motor"}
    write_recording(tmp_path / "one.mcap", replace(recording, channels=channels))
    thetad("validate", models["elastic"], tmp_path / "one.mcap").refused("one.mcap: no channel q_motor")
    dq = np.gradient(recording.channels["q"], recording.t, axis=0) * [1.0, 1.0, 0.0]  # a joint has none
    model, dead = load_model(models["elastic"]), replace(recording, channels=recording.channels | {"dq": dq})
    assert validate_model(model, dead, replace(model.settings, velocity="measured")).metrics.count.all()
    thetad("models", "diff", models["elastic"], models["rigid"]).refused("elastic.yaml has elastic joints")
    thetad("payload", models["elastic"], soft).refused("its joints are elastic: identify with --joints rigid")


def test_a_damaged_spring_is_refused(models: dict[str, Path], tmp_path: Path) -> None:
    text = models["elastic"].read_text(encoding="utf-8")
    spring = load_model(models["elastic"]).springs[0]
    (tmp_path / "model.yaml").write_text(text.replace(str(spring["stiffness"]["value"]), "1.0", 1), encoding="utf-8")
    with pytest.raises(ModelFileError, match="values_sha256"):
        load_model(tmp_path / "model.yaml")


def test_elastic_joints_are_promoted_where_springs_are_estimated(
    soft: Path, robot: Path, models: dict[str, Path], tmp_path: Path
) -> None:
    given = {"model": "m", "recording": "r", "robot": str(robot), "span": "0.65:1"}
    files = {"model": models["elastic"], "recording": soft, "present": models["rigid"]}
    with pytest.raises(OperationError, match=r"elastic.yaml: the model's joints are elastic, and the arm has no"):
        run_here("promote", given, tmp_path / "a", **files)
    tracked = given | {"springs": ["joint_3"]}
    found = run_here("promote", tracked, tmp_path / "b", **files)
    assert (found.verdict, found.accepted) == ("promoted", True)
    active = json.loads((tmp_path / "b" / "active.json").read_text(encoding="utf-8"))
    (known,) = known_springs(active["elastic"], ["joint_3"])
    assert known.start.values["k1"] == pytest.approx(arm(elastic=True).dynamics.stiffness[2], rel=0.02)
    p = len(load_model(models["rigid"]).theta)
    assert np.shape(active["theta"]) == (p,)
    assert np.shape(active["covariance"]) == (p, p)
    with pytest.raises(OperationError, match=r"joints are rigid, and \[\[arm.elastic\]\] of joint_3 starts from"):
        run_here("promote", tracked, tmp_path / "c", model=models["rigid"], recording=soft)


def test_auto_keeps_rigid_joints_and_their_result(stiff: Path, robot: Path) -> None:
    plain = thetad("identify", stiff, "--robot", robot, *SIGNALS, "--json")
    auto = identify(stiff, robot, "auto", "--json")
    assert plain.code == auto.code == 0
    ours, theirs = auto.json, plain.json
    choice = ours.pop("joint_model")
    assert choice["chosen"] == "rigid"
    assert "not better beyond chance" in choice["reason"]
    for found in (ours, theirs):
        found.pop("created")
    assert ours == theirs


def test_one_encoder_is_rigid_and_refused_where_springs_are_asked_for(robot: Path, tmp_path: Path) -> None:
    recording, path = moved(elastic=True), tmp_path / "one.mcap"
    channels = {name: values for name, values in recording.channels.items() if name != "q_motor"}
    write_recording(path, replace(recording, channels=channels))
    choice = identify(path, robot, "auto", "--json").json["joint_model"]
    assert choice["chosen"] == "rigid"
    assert "no channel q_motor" in choice["reason"]
    identify(path, robot, "elastic").refused("joints elastic", str(path), "no channel q_motor")


def changed(recording: Recording, path: Path, **channels: np.ndarray) -> Path:
    write_recording(path, replace(recording, channels=recording.channels | channels))
    return path


def test_encoders_that_are_read_at_different_times_do_not_tell_rotor_from_link(robot: Path, tmp_path: Path) -> None:
    """What a joint moves between two readings would pass for motion of the spring."""
    recording = moved(elastic=True)
    late = np.vstack((recording.channels["q"][:2], recording.channels["q"][:-2]))  # 4 ms
    found = identify(changed(recording, tmp_path / "late.mcap", q=late), robot, "elastic", "--json").json
    statuses = {p["name"]: p["status"] for p in found["parameters"]}
    assert not {statuses[f"Ia{k + 1}"] for k in range(2)} & {"determined", "weak"}
    assert any("ms apart" in reason or "at one time" in reason for reason in found["reasons"]), found["reasons"]


def test_a_torque_constant_that_nobody_has_given_is_not_one(soft: Path, robot: Path, tmp_path: Path) -> None:
    text = robot.read_text(encoding="utf-8")
    bare = tmp_path / "arm3_elastic.toml"
    bare.write_text("\n".join(line for line in text.splitlines() if "torque_constant" not in line), encoding="utf-8")
    done = thetad("identify", soft, "--model", "elastic_joint", "--joint", "1", "--robot", bare)
    done.refused("--torque-constant: is not given")
    stiffness = [joint["stiffness"] for joint in identify(soft, bare, "elastic", "--json").json["joints"]]
    assert all(k["value"] is None and "is not given" in k["reason"] for k in stiffness)


def test_doubts_about_the_rigid_model_hold_for_the_elastic_one(robot: Path, tmp_path: Path) -> None:
    """Torque that is late makes any model doubtful, whatever its joints."""
    recording = moved(elastic=True)
    channels = recording.channels
    late = {name: np.vstack((channels[name][:5], channels[name][:-5])) for name in ("tau", "current")}
    found = identify(changed(recording, tmp_path / "late.mcap", **late), robot, "elastic", "--json").json
    assert found["verdict"] == "doubtful"
    assert any(reason.startswith("the model with rigid joints is doubtful: ") for reason in found["reasons"])
    assert "determined" not in {p["status"] for p in found["parameters"]}
