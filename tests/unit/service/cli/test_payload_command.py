"""`thetad payload` on simulated arms: intervals hold the truth, the unknown is not said, wrong input is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import load_robot
from rt_core.model.inertia import inertial_vector, is_physical, mass_com_inertia, six, transform_inertial
from rt_core.model.robot import RobotModel
from rt_core.online._settings import OnlineSettings
from rt_core.online.estimator import OnlineEstimator
from service.operations.payload import QUANTITIES, _derivatives
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.command_line import RATE_HZ, ROOT, rewrite, simulate, thetad, write_recording
from tests.lab.console import check_page, surroundings

LOAD = inertial_vector(2.5, np.array([0.01, -0.02, 0.08]), np.diag([0.02, 0.015, 0.01]))
TRUTH = np.array([2.5, 0.01, -0.02, 0.08, 0.02, 0.0, 0.015, 0.0, 0.0, 0.01])


def loaded(model: RobotModel, load: np.ndarray = LOAD) -> RobotModel:
    """The arm with a payload on its flange."""
    assert model.inertial is not None
    inertial = model.inertial.copy()
    inertial[-1] += transform_inertial(load, model.tip_rotation, model.tip_translation)
    return replace(model, inertial=inertial)


def rows_of(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [found["mass"], *found["centre_of_mass"], *found["inertia"]]
    assert [(row["name"], row["unit"]) for row in rows] == list(QUANTITIES)
    return rows


def inside(found: Mapping[str, Any], truth: np.ndarray = TRUTH) -> list[bool]:
    """Which intervals hold the truth; none misses it by far, and only what is known has a value."""
    held = []
    for row, value in zip(rows_of(found), truth, strict=True):
        if row["status"] == "undetermined":
            assert row["value"] is row["lower"] is row["upper"] is None
            assert row["reason"]
        else:
            assert row["upper"] - row["value"] == pytest.approx(1.96 * row["std"], rel=1e-4)
            assert abs(row["value"] - value) < 4.0 * row["std"], row
            held.append(row["lower"] <= value <= row["upper"])
    return held


def check_truth(found: Mapping[str, Any]) -> None:
    """Nearly all of ten intervals hold the truth."""
    held = inside(found)
    assert len(held) == len(TRUTH)
    assert np.mean(held) >= 0.8


@pytest.fixture(scope="module")
def arm7_loaded(work: Path) -> Path:
    return simulate(work / "arm7_loaded.mcap", loaded(load_robot("arm7").model), seed=12, seconds=16.0)


@pytest.fixture(scope="module")
def space6_loaded(work: Path) -> Path:
    return simulate(work / "space6_loaded.mcap", loaded(load_robot("space6").model), seed=11, seconds=16.0)


@pytest.fixture(scope="module")
def arm7_physical(work: Path, arm7_recording: Path) -> Path:
    out = work / "arm7_physical.yaml"
    done = thetad("identify", arm7_recording, "--robot", "arm7", "--method", "physical", "--span", "0:0.6", "-o", out)
    assert done.code == 0, done
    return out


@pytest.mark.soak
@pytest.mark.parametrize(
    ("robot", "model"), [("arm7", "arm7_model"), ("arm7", "arm7_physical"), ("space6", "space6_model")]
)
@pytest.mark.parametrize("options", [(), ("--refit-effects",)])
def test_intervals_hold_the_truth(
    robot: str, model: str, options: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    before, after = request.getfixturevalue(model), request.getfixturevalue(f"{robot}_loaded")
    done = thetad("payload", before, after, *options, "--json")
    assert (done.code, done.err) == (0, "")
    found = done.json
    assert (found["verdict"], found["present"], found["robot"]) == ("determined", True, robot)
    assert found["mass"]["value"] == pytest.approx(2.5, rel=0.05)
    assert found["mass"]["status"] == "determined"
    check_truth(found)
    assert 0.7 < found["scatter"] < 2.0
    errors = found["relative_error"]
    assert errors["own_fit"] < 0.01 < 0.1 < errors["without_payload"]
    assert (errors["with_payload"] is None) == bool(options)
    if not options:
        assert errors["own_fit"] <= errors["with_payload"] < 1.5 * errors["own_fit"]
    body = found["body"]
    phi = inertial_vector(body["mass"], np.array(body["centre_of_mass"]), np.array(body["inertia"]))
    assert is_physical(phi)
    assert body["mass"] == pytest.approx(2.5, rel=0.05)


def test_for_people(arm7_model: Path, arm7_loaded: Path) -> None:
    done = thetad("payload", arm7_model, arm7_loaded, "--span", "0:0.9")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "determined: the payload is determined"
    for name, unit in QUANTITIES:
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert unit in line
    assert any("95 % from" in line for line in lines)
    assert any("nearest real body" in line for line in lines)


def test_without_payload_none_is_seen(arm7_model: Path, arm7_recording: Path) -> None:
    """The part of the recording that the model has not seen."""
    done = thetad("payload", arm7_model, arm7_recording, "--span", "0.62:1", "--json")
    assert (done.code, done.err) == (1, "")
    found = done.json
    assert (found["verdict"], found["present"], found["body"]) == ("no_payload", False, None)
    assert "no payload is seen" in found["reasons"][0]
    assert all(row["value"] is None and row["reason"] == "no payload is seen" for row in rows_of(found))
    shown = thetad("payload", arm7_model, arm7_recording, "--span", "0.62:1")
    assert shown.code == 1
    assert shown.out.startswith("no_payload: no payload is seen\n")
    assert "centre_x" not in shown.out


def test_the_wrong_way_round(arm7_loaded: Path, arm7_recording: Path, tmp_path: Path) -> None:
    """A model that was identified with the payload, and a recording without it."""
    out = tmp_path / "loaded.yaml"
    assert thetad("identify", arm7_loaded, "--robot", "arm7", "-o", out).code == 0
    done = thetad("payload", out, arm7_recording, "--json")
    assert done.code == 1
    assert done.json["verdict"] == "no_payload"
    assert any("clearly negative" in reason for reason in done.json["reasons"])


def test_friction_that_changed(arm7_physical: Path, work: Path) -> None:
    """A third more friction is no payload: it is said, and with the friction free the payload is right again."""
    model = loaded(load_robot("arm7").model)
    assert model.dynamics is not None
    warmer = replace(model.dynamics, coulomb=1.3 * model.dynamics.coulomb, viscous=1.3 * model.dynamics.viscous)
    path = simulate(work / "arm7_friction.mcap", replace(model, dynamics=warmer), seed=13, seconds=16.0)
    found = thetad("payload", arm7_physical, path, "--json").json
    assert found["verdict"] == "doubtful"
    assert found["scatter"] > 3.0
    assert "--refit-effects" in found["reasons"][0]
    assert "determined" not in {row["status"] for row in rows_of(found)}
    assert found["body"] is None
    done = thetad("payload", arm7_physical, path, "--refit-effects", "--json")
    assert done.code == 0
    assert done.json["verdict"] == "determined"
    assert done.json["scatter"] < 2.0
    check_truth(done.json)


def slow_recording(work: Path, seed: int, seconds: float = 16.0) -> Path:
    """Slow small motion of the loaded arm: it shows mass and centre, and little of the inertia."""
    model = loaded(load_robot("arm7").model)
    motion = MotionSettings(seed=seed, amplitude=0.1, harmonics=1, candidates=1)
    settings = SimSettings(seed=seed, rate_hz=RATE_HZ, channels=("q", "dq", "tau"))
    data = SimulatedArm(model, settings, motion).simulate(seconds)
    return write_recording(work / f"arm7_slow_{seed}.mcap", model, data.t, data.channels)


def test_a_poor_motion_leaves_open_what_it_does_not_show(arm7_physical: Path, work: Path) -> None:
    path = slow_recording(work, 53)
    done = thetad("payload", arm7_physical, path, "--json")
    assert done.code == 0, done
    found = done.json
    assert found["verdict"] == "partly_determined"
    assert found["mass"]["status"] == "determined"
    assert found["body"] is None
    assert inside(found)
    unknown = [row["name"] for row in rows_of(found) if row["status"] == "undetermined"]
    assert set(unknown) & {name for name, _ in QUANTITIES[4:]}
    assert all(name in found["reasons"][-1] for name in unknown)
    shown = thetad("payload", arm7_physical, path).out
    assert all("–" in line for line in shown.splitlines() if line.split(" ")[0] in unknown)


@pytest.mark.soak
def test_intervals_of_poor_motions_hold_the_truth(arm7_physical: Path, work: Path) -> None:
    """A few values a motion: many motions make a share of them meaningful."""
    held: list[bool] = []
    for seed in range(60, 70):
        held += inside(thetad("payload", arm7_physical, slow_recording(work, seed, 10.0), "--json").json)
    assert len(held) >= 40
    assert np.mean(held) >= 0.85


def test_a_light_payload_below_its_uncertainty(arm7_physical: Path, work: Path) -> None:
    light = loaded(load_robot("arm7").model, 2e-4 * LOAD)
    path = simulate(work / "arm7_light.mcap", light, seed=14, seconds=12.0)
    done = thetad("payload", arm7_physical, path, "--json")
    assert done.code == 1
    assert done.json["verdict"] == "no_payload"


# Two estimates -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def arm7_loaded_model(work: Path, arm7_loaded: Path) -> Path:
    out = work / "arm7_loaded.yaml"
    assert thetad("identify", arm7_loaded, "--robot", "arm7", "-o", out).code == 0
    return out


def test_two_models(arm7_model: Path, arm7_loaded_model: Path) -> None:
    done = thetad("payload", arm7_model, arm7_loaded_model, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["verdict"] == "determined"
    assert done.json["mass"]["value"] == pytest.approx(2.5, rel=0.05)
    assert "relative_error" not in done.json
    check_truth(done.json)
    assert thetad("payload", arm7_model, arm7_loaded_model).code == 0
    same = thetad("payload", arm7_model, arm7_model, "--json")
    assert (same.code, same.json["verdict"]) == (1, "no_payload")


def snapshot(estimator: OnlineEstimator) -> dict[str, Any]:
    """What `thetad control snapshot` prints, as far as a payload needs it."""
    report = estimator.report()
    return {
        "theta": report.theta.tolist(),
        "covariance": estimator.covariance.tolist(),
        "status": list(report.status),
        "meta": estimator.meta,
    }


@pytest.fixture(scope="module")
def after(work: Path, arm7_recording: Path, arm7_loaded: Path) -> Path:
    """Snapshot of an online estimator that was reset when the payload was attached."""
    model = load_robot("arm7").model
    estimator = OnlineEstimator(model, OnlineSettings(cutoff_hz=10.0, memory_s=60.0), RATE_HZ, has_dq=True)
    for path, stop in ((arm7_recording, 2500), (arm7_loaded, None)):
        estimator.reset()
        recording = read_recording(path)
        for k, t in enumerate(recording.t[:stop]):
            q, dq, tau = (recording.channels[name][k] for name in ("q", "dq", "tau"))
            estimator.step(round(t * 1e9), k, q, tau, dq=dq)
    out = work / "after.json"
    out.write_text(json.dumps(snapshot(estimator)))
    return out


def test_online_after_an_attach_event(arm7_physical: Path, after: Path) -> None:
    done = thetad("payload", arm7_physical, after, "--json")
    assert (done.code, done.err) == (0, "")
    found = done.json
    assert found["present"]
    assert found["mass"]["value"] == pytest.approx(2.5, rel=0.05)
    check_truth(found)


def test_a_snapshot_that_does_not_fit(arm7_physical: Path, space6_model: Path, after: Path, tmp_path: Path) -> None:
    thetad("payload", space6_model, after).refused("after.json", "arm7", "space6")
    path = tmp_path / "s.json"
    content = json.loads(after.read_text())
    for change, words in (
        ({"theta": content["theta"][:-1]}, ("finite values",)),
        ({"status": ["invalid", *content["status"][1:]]}, ("invalid",)),
        ({"meta": {**content["meta"], "constants": [0.1] * len(content["theta"])}}, ("velocity constants",)),
        ({"meta": {}}, ("not the answer", "base_map")),
        ({"covariance": "much"}, ("not the answer",)),
    ):
        path.write_text(json.dumps(content | change))
        thetad("payload", arm7_physical, path).refused("s.json", *words)
    path.write_text("no JSON")
    thetad("payload", arm7_physical, path).refused("s.json", "not the answer")
    thetad("payload", arm7_physical, tmp_path / "absent.json").refused("absent.json")


# Wrong input ---------------------------------------------------------------------------------------


def test_another_robot(arm7_model: Path, space6_model: Path, space6_recording: Path, arm7_loaded: Path) -> None:
    thetad("payload", arm7_model, space6_model).refused("space6.yaml", "arm7", "same robot")
    thetad("payload", arm7_model, space6_recording).refused("space6.mcap", "robot space6", "arm7")
    thetad("payload", space6_model, arm7_loaded).refused("arm7_loaded.mcap", "robot arm7")


def test_the_models_own_recording(arm7_model: Path, arm7_recording: Path) -> None:
    thetad("payload", arm7_model, arm7_recording).refused("arm7.mcap", "was identified from", "--span")


def test_a_model_that_leaves_parameters_open(
    arm7_model: Path, arm7_loaded_model: Path, arm7_loaded: Path, tmp_path: Path
) -> None:
    document = yaml.safe_load(arm7_model.read_text())
    k = 3
    for row in document["covariance"]:
        row[k] = 0.0
    document["covariance"][k] = [0.0] * len(document["theta"])
    path = tmp_path / "open.yaml"
    path.write_text(yaml.safe_dump(document))
    name = document["parameters"][k]["name"]
    thetad("payload", path, arm7_loaded).refused("open.yaml", name, "--method physical")
    thetad("payload", path, arm7_loaded_model).refused("open.yaml", name, "--method physical")
    assert thetad("payload", arm7_model, path, "--json").code == 1  # after: what is open there is left out
    document["verdict"] = "not_explained"
    path.write_text(yaml.safe_dump(document))
    thetad("payload", path, arm7_loaded).refused("does not explain")
    thetad("payload", arm7_model, path).refused("does not explain")


def test_damaged_recordings(arm7_model: Path, arm7_loaded: Path, tmp_path: Path) -> None:
    model = load_robot("arm7").model
    recording = read_recording(arm7_loaded)
    tau = recording.channels["tau"]
    path = rewrite(recording, tmp_path / "nan.mcap", model, tau=np.full_like(tau, np.nan))
    thetad("payload", arm7_model, path).refused("nan.mcap")

    fewer = replace(model, joints=model.joints[:-1], inertial=None, dynamics=None, transmission=None)
    channels = {name: values[:, :-1] for name, values in recording.channels.items()}
    path = write_recording(tmp_path / "six.mcap", fewer, recording.t, channels)
    thetad("payload", arm7_model, path).refused("six.mcap", "6 joints", "7")

    path = write_recording(tmp_path / "q.mcap", model, recording.t, {"q": recording.channels["q"]})
    thetad("payload", arm7_model, path).refused("q.mcap", "no channel tau")

    rng = np.random.default_rng(1)
    noise = tau.copy()
    noise[:, 2] = tau[:, 2].mean() + tau[:, 2].std() * rng.normal(size=tau.shape[0])
    path = rewrite(recording, tmp_path / "noise.mcap", model, tau=noise)
    done = thetad("payload", arm7_model, path, "--json")
    assert done.code == 1
    assert done.json["verdict"] == "not_explained"
    assert any("joint_3" in reason for reason in done.json["reasons"])
    assert {row["value"] for row in rows_of(done.json)} == {None}


def test_the_page_shows_what_is_printed(arm7_physical: Path, arm7_loaded: Path, tmp_path: Path) -> None:
    shutil.copy(arm7_physical, tmp_path / "empty.yaml")
    shutil.copy(arm7_loaded, tmp_path / "loaded.mcap")
    check_page(ROOT / "docs" / "payload.md", tmp_path, surroundings())


def test_usage(arm7_model: Path, arm7_loaded: Path, tmp_path: Path) -> None:
    thetad("payload", arm7_model, arm7_model, "--span", "0:1").refused("--span")
    thetad("payload", arm7_loaded, arm7_loaded).refused("arm7_loaded.mcap")
    thetad("payload", arm7_model, tmp_path / "absent.mcap").refused("absent.mcap")
    thetad("payload", arm7_model, arm7_loaded, "--span", "0.5:0.51").refused("rows for")
    thetad("payload", arm7_model, arm7_loaded, "--span", "x").refused("x")


def test_derivatives() -> None:
    """Against differences."""

    def quantities(phi: np.ndarray) -> np.ndarray:
        mass, com, inertia = mass_com_inertia(phi)
        return np.concatenate(([mass], com, six(inertia)))

    rng = np.random.default_rng(1)
    phi = LOAD + 0.01 * rng.normal(size=10)
    step = 1e-6
    slow = [(quantities(phi + step * e) - quantities(phi - step * e)) / (2.0 * step) for e in np.eye(10)]
    np.testing.assert_allclose(_derivatives(phi), np.stack(slow, axis=1), atol=1e-8)
