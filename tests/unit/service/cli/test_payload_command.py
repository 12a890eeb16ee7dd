"""`thetad payload` on simulated arms: intervals hold the truth, the unknown is not said, wrong input is refused."""

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
from rt_core.model.inertia import inertial_vector, is_physical
from rt_core.online._settings import OnlineSettings
from rt_core.online.estimator import OnlineEstimator
from service.models.document import model_text
from service.operations.payload import QUANTITIES
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.command_line import RATE_HZ, ROOT, Outcome, simulate, thetad, write_recording
from tests.lab.console import check_page, surroundings
from tests.lab.recordings.fixtures import LOAD, loaded, once

TRUTH = np.array([2.5, 0.01, -0.02, 0.08, 0.02, 0.0, 0.015, 0.0, 0.0, 0.01])


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
def plain(arm7_model: Path, arm7_loaded: Path) -> Outcome:
    return thetad("payload", arm7_model, arm7_loaded, "--json")


@pytest.mark.slow
def test_intervals_hold_the_truth(arm7_model: Path, arm7_loaded: Path, plain: Outcome) -> None:
    for done in (plain, thetad("payload", arm7_model, arm7_loaded, "--refit-effects", "--json")):
        assert (done.code, done.err) == (0, "")
        found = done.json
        assert (found["verdict"], found["present"], found["robot"]) == ("determined", True, "arm7")
        assert found["mass"]["value"] == pytest.approx(2.5, rel=0.05)
        check_truth(found)
        assert 0.7 < found["scatter"] < 2.0
        errors = found["relative_error"]
        assert errors["own_fit"] < 0.01 < 0.1 < errors["without_payload"]
        assert (errors["with_payload"] is None) == (done is not plain)
        body = found["body"]
        assert is_physical(inertial_vector(body["mass"], np.array(body["centre_of_mass"]), np.array(body["inertia"])))
    lines = thetad("payload", arm7_model, arm7_loaded, "--span", "0:0.9").out.splitlines()
    assert lines[0] == "determined: the payload is determined"
    for name, unit in QUANTITIES:
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert unit in line


def test_the_scale_of_the_torque_widens_the_mass_or_follows_from_it(
    arm7_model: Path, arm7_loaded: Path, plain: Outcome
) -> None:
    wide = thetad("payload", arm7_model, arm7_loaded, "--torque-std", "5", "--json").json
    mass, told = wide["mass"], plain.json["mass"]
    assert mass["std"] == pytest.approx(np.hypot(told["std"], 0.05 * mass["value"]), rel=1e-6)
    assert wide["centre_of_mass"] == plain.json["centre_of_mass"]
    known = thetad("payload", arm7_model, arm7_loaded, "--known", "2.0", "--json").json["torque_factor"]
    assert known["value"] == pytest.approx(told["value"] / 2.0)
    assert known["lower"] < 2.5 / 2.0 < known["upper"]
    for wrong in (("--known", "-1"), ("--torque-std", "100")):
        assert thetad("payload", arm7_model, arm7_loaded, *wrong).code == 2


def test_without_payload_none_is_seen(arm7_model: Path, arm7_recording: Path) -> None:
    """The part of the recording that the model has not seen."""
    command = ("payload", arm7_model, arm7_recording, "--span", "0.62:1")
    done, shown = thetad(*command, "--json"), thetad(*command)
    assert (done.code, done.err, shown.code) == (1, "", 1)
    found = done.json
    assert (found["verdict"], found["present"], found["body"]) == ("no_payload", False, None)
    assert all(row["value"] is None and row["reason"] == "no payload is seen" for row in rows_of(found))
    assert shown.out.startswith("no_payload: no payload is seen\n")
    assert "centre_x" not in shown.out


def test_the_wrong_way_round(arm7_loaded_model: Path, arm7_recording: Path) -> None:
    """A model that was identified with the payload, and a recording without it."""
    done = thetad("payload", arm7_loaded_model, arm7_recording, "--json")
    assert (done.code, done.json["verdict"]) == (1, "no_payload")
    assert any("clearly negative" in reason for reason in done.json["reasons"])


@pytest.mark.slow
def test_friction_that_changed(arm7_physical: Path, work: Path) -> None:
    """A third more friction is no payload: it is said, and with the friction free the payload is right again."""
    model = loaded(load_robot("arm7").model)
    warmer = replace(model.dynamics, coulomb=1.3 * model.dynamics.coulomb, viscous=1.3 * model.dynamics.viscous)
    path = simulate(work / "arm7_friction.mcap", replace(model, dynamics=warmer), seed=13, seconds=16.0)
    found = thetad("payload", arm7_physical, path, "--json").json
    assert (found["verdict"], found["body"]) == ("doubtful", None)
    assert found["scatter"] > 3.0
    assert "--refit-effects" in found["reasons"][0]
    assert "determined" not in {row["status"] for row in rows_of(found)}
    done = thetad("payload", arm7_physical, path, "--refit-effects", "--json")
    assert (done.code, done.json["verdict"]) == (0, "determined")
    assert done.json["scatter"] < 2.0
    check_truth(done.json)


def test_a_poor_motion_leaves_open_what_it_does_not_show(arm7_physical: Path, work: Path) -> None:
    """Slow small motion of the loaded arm: it shows mass and centre, and little of the inertia."""
    model = loaded(load_robot("arm7").model)
    motion = MotionSettings(seed=53, amplitude=0.1, harmonics=1, candidates=1)
    settings = SimSettings(seed=53, rate_hz=RATE_HZ, channels=("q", "dq", "tau"))
    data = SimulatedArm(model, settings, motion).simulate(16.0)
    path = write_recording(work / "arm7_slow.mcap", model, data.t, data.channels)
    found = thetad("payload", arm7_physical, path, "--json").ok().json
    assert (found["verdict"], found["mass"]["status"], found["body"]) == ("partly_determined", "determined", None)
    assert inside(found)
    unknown = [row["name"] for row in rows_of(found) if row["status"] == "undetermined"]
    assert set(unknown) & {name for name, _ in QUANTITIES[4:]}
    assert all(name in found["reasons"][-1] for name in unknown)
    shown = thetad("payload", arm7_physical, path).out
    assert all("–" in line for line in shown.splitlines() if line.split(" ")[0] in unknown)


def test_a_light_payload_below_its_uncertainty(arm7_physical: Path, work: Path) -> None:
    light = loaded(load_robot("arm7").model, 2e-4 * LOAD)
    path = simulate(work / "arm7_light.mcap", light, seed=14, seconds=8.0)
    done = thetad("payload", arm7_physical, path, "--json")
    assert (done.code, done.json["verdict"]) == (1, "no_payload")


@pytest.fixture(scope="module")
def arm7_loaded_model(work: Path, arm7_loaded: Path) -> Path:
    return once(work / "arm7_loaded.yaml", lambda path: thetad("identify", arm7_loaded, "--robot", "arm7", "-o", path))


def test_two_models(arm7_model: Path, arm7_loaded_model: Path) -> None:
    done = thetad("payload", arm7_model, arm7_loaded_model, "--json")
    assert (done.code, done.err, done.json["verdict"]) == (0, "", "determined")
    assert done.json["mass"]["value"] == pytest.approx(2.5, rel=0.05)
    check_truth(done.json)
    assert thetad("payload", arm7_model, arm7_loaded_model).code == 0
    same = thetad("payload", arm7_model, arm7_model, "--json")
    assert (same.code, same.json["verdict"]) == (1, "no_payload")


@pytest.fixture(scope="module")
def after(work: Path, arm7_recording: Path, arm7_loaded: Path) -> Path:
    """What `thetad control snapshot` prints of an estimator that was reset when the payload was attached."""

    def step(out: Path) -> None:
        model = load_robot("arm7").model
        estimator = OnlineEstimator(model, OnlineSettings(cutoff_hz=10.0, memory_s=60.0), RATE_HZ, has_dq=True)
        for path, stop in ((arm7_recording, 2500), (arm7_loaded, None)):
            estimator.reset()
            recording = read_recording(path)
            for k, t in enumerate(recording.t[:stop]):
                q, dq, tau = (recording.channels[name][k] for name in ("q", "dq", "tau"))
                estimator.step(round(t * 1e9), k, q, tau, dq=dq)
        report = estimator.report()
        found = {"theta": report.theta.tolist(), "covariance": estimator.covariance.tolist(), "status": report.status}
        out.write_text(json.dumps(found | {"meta": estimator.meta}))

    return once(work / "after.json", step)


@pytest.mark.slow
def test_online_after_an_attach_event(arm7_physical: Path, after: Path) -> None:
    done = thetad("payload", arm7_physical, after, "--json")
    assert (done.code, done.err, done.json["present"]) == (0, "", True)
    assert done.json["mass"]["value"] == pytest.approx(2.5, rel=0.05)
    check_truth(done.json)


def test_a_snapshot_that_does_not_fit(arm7_physical: Path, space6_model: Path, after: Path, tmp_path: Path) -> None:
    thetad("payload", space6_model, after).refused("after.json", "arm7", "space6")
    path = tmp_path / "s.json"
    content = json.loads(after.read_text())
    for change, words in (
        ({"theta": content["theta"][:-1]}, ("finite values",)),
        ({"status": ["invalid", *content["status"][1:]]}, ("invalid",)),
        ({"meta": {**content["meta"], "constants": [0.1] * len(content["theta"])}}, ("velocity constants",)),
        ({"meta": {}}, ("not the answer", "base_map")),
    ):
        path.write_text(json.dumps(content | change))
        thetad("payload", arm7_physical, path).refused("s.json", *words)
    path.write_text("no JSON")
    thetad("payload", arm7_physical, path).refused("s.json", "not the answer")


def test_a_model_that_leaves_parameters_open(
    arm7_model: Path, arm7_loaded_model: Path, arm7_loaded: Path, tmp_path: Path
) -> None:
    document = yaml.safe_load(arm7_model.read_text())
    k = 3
    for row in document["covariance"]:
        row[k] = 0.0
    document["covariance"][k] = [0.0] * len(document["theta"])
    path = tmp_path / "open.yaml"
    path.write_text(model_text(document))
    for after in (arm7_loaded, arm7_loaded_model):
        name = document["parameters"][k]["name"]
        thetad("payload", path, after).refused("open.yaml", name, "--method physical")
    assert thetad("payload", arm7_model, path, "--json").code == 1  # after: what is open there is left out
    path.write_text(model_text(document | {"verdict": "not_explained"}))
    for models in ((path, arm7_loaded), (arm7_model, path)):
        thetad("payload", *models).refused("does not explain")


@pytest.mark.slow
def test_the_page_shows_what_is_printed(arm7_physical: Path, arm7_loaded: Path, tmp_path: Path) -> None:
    shutil.copy(arm7_physical, tmp_path / "empty.yaml")
    shutil.copy(arm7_loaded, tmp_path / "loaded.mcap")
    check_page(ROOT / "docs" / "payload.md", tmp_path, surroundings())


def test_wrong_inputs(arm7_model: Path, arm7_recording: Path, arm7_loaded: Path, space6_model: Path) -> None:
    for before, after, *words in (
        (arm7_model, space6_model, "space6.yaml", "arm7", "same robot"),
        (space6_model, arm7_loaded, "arm7_loaded.mcap", "robot arm7"),
        (arm7_model, arm7_recording, "arm7.mcap", "was identified from", "--span"),
        (arm7_loaded, arm7_loaded, "arm7_loaded.mcap"),
        (arm7_model, "absent.mcap", "absent.mcap"),
    ):
        thetad("payload", before, after).refused(*words)
    thetad("payload", arm7_model, arm7_model, "--span", "0:1").refused("--span")
    thetad("payload", arm7_model, arm7_loaded, "--span", "0.5:0.51").refused("rows for")
