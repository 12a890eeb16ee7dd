"""`thetad identify` and `thetad validate` over temperature: -40 to +60 degC, and beyond what was seen."""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from drivers.files.robots.file import load_robot
from rt_core.model.friction import Friction
from rt_core.model.regressor import regressor
from service.models.document import ModelFileError, load_model
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import AmbientSettings, MotionSettings, SimSettings
from tests.lab.command_line import simulate, thetad, write_recording

ROBOT = "space6_temperature"
SECONDS = 80.0
RATE_HZ = 250.0


def record(path: Path, from_c: float, to_c: float, seed: int, seconds: float = SECONDS, **channels: Any) -> Path:
    """A recording of the arm while the ambient temperature goes from one to the other."""
    model = load_robot(ROBOT).model
    settings = SimSettings(
        seed=seed,
        rate_hz=RATE_HZ,
        ambient_c=from_c,
        ambient=(AmbientSettings(time_s=0.95 * seconds, ambient_c=to_c),),
        thermal_time_s=3.0,
    )
    data = SimulatedArm(model, settings, MotionSettings(seed=seed, candidates=2)).simulate(seconds)
    kept = {name: data.channels[name] for name in channels.get("only", ("q", "dq", "tau", "temperature"))}
    return write_recording(path, model, data.t, kept, RATE_HZ)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("sweep") / "sweep.mcap", -40.0, 60.0, 1)


@pytest.fixture(scope="module")
def model_path(swept: Path) -> Path:
    out = swept.with_name("model.yaml")
    page = swept.with_name("report.html")
    done = thetad("identify", swept, "--robot", ROBOT, "-o", out, "--report", page, "--json")
    assert done.code == 0, done
    assert done.json["verdict"] == "ok", done.json["reasons"]
    return out


def test_the_slopes_are_found_to_three_per_cent(model_path: Path) -> None:
    truth = load_robot(ROBOT).model.dynamics
    assert truth is not None
    rows = {row["name"]: row for row in yaml.safe_load(model_path.read_text())["parameters"]}
    for i, alpha in enumerate(truth.coulomb_temperature, start=1):
        row = rows[f"alpha{i}"]
        assert row["status"] == "determined"
        assert row["unit"] == "N*m/K"
        assert row["value"] == pytest.approx(alpha, rel=0.03)
        assert abs(row["value"] - alpha) < 4.0 * row["std"]


def test_compensation_leaves_a_third_of_the_error(swept: Path, model_path: Path, tmp_path: Path) -> None:
    other = record(tmp_path / "other.mcap", 60.0, -40.0, 2)
    plain = tmp_path / "plain.yaml"
    source = (Path("configs/robots") / f"{ROBOT}.toml").read_text().replace('friction_temperature = "coulomb"', "")
    for urdf in Path("configs/robots").glob("space6.urdf"):
        (tmp_path / urdf.name).write_bytes(urdf.read_bytes())
    robot = tmp_path / "plain.toml"
    robot.write_text(source)
    assert thetad("identify", swept, "--robot", robot, "-o", plain, "--json").code == 0
    without = thetad("validate", plain, other, "--json").json
    found = thetad("validate", model_path, other, "--json")
    assert found.code == 0, found
    assert found.json["verdict"] == "ok"
    assert found.json["temperature"]["within"] is True
    assert without["temperature"] is None
    rmse, uncompensated = np.array(found.json["rmse"]), np.array(without["rmse"])
    assert (rmse < uncompensated / 3.0).all(), (rmse, uncompensated)


def test_outside_the_temperatures_seen_it_says_so(model_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "warm.yaml"
    warm = record(tmp_path / "warm.mcap", 15.0, 45.0, 3, 40.0)
    assert thetad("identify", warm, "--robot", ROBOT, "-o", out, "--json").code == 0
    fitted = load_model(out).temperatures
    assert fitted is not None
    assert (fitted.lower > 10.0).all()
    assert (fitted.upper < 60.0).all()
    cold = record(tmp_path / "cold.mcap", -30.0, -20.0, 4, 15.0)
    done = thetad("validate", out, cold, "--json")
    assert done.code == 1
    assert done.json["verdict"] in ("outside_temperatures", "not_explained")
    assert done.json["temperature"]["within"] is False
    assert done.json["temperature"]["share_outside"] == [1.0] * 6
    assert sum("its friction is not known there" in reason for reason in done.json["reasons"]) == 6
    shown = thetad("validate", out, cold)
    assert "joint joint_1: it is at" in shown.out
    inside = record(tmp_path / "inside.mcap", 20.0, 40.0, 5, 15.0)
    assert thetad("validate", out, inside, "--json").json["verdict"] == "ok"


def test_the_report_shows_friction_over_temperature(model_path: Path) -> None:
    page = model_path.with_name("report.html").read_text()
    assert "at the lowest, the middle and the highest temperature" in page


def test_a_recording_without_temperatures_is_refused(tmp_path: Path) -> None:
    bare = record(tmp_path / "bare.mcap", 20.0, 30.0, 1, 5.0, only=("q", "tau"))
    thetad("identify", bare, "--robot", ROBOT).refused("no channel temperature", "friction_temperature")


def test_the_model_file_keeps_its_temperatures(model_path: Path, tmp_path: Path) -> None:
    model = load_model(model_path)
    document = dict(model.document)
    seen = model.temperatures
    assert seen is not None
    assert document["temperature"]["reference_c"] == 20.0
    assert document["temperature"]["lower"] == seen.lower.tolist()
    for change in ({}, {"temperature": None}, {"temperature": document["temperature"] | {"lower": [0.0]}}):
        damaged = {k: v for k, v in document.items() if k != "temperature"} | change
        path = tmp_path / "damaged.yaml"
        path.write_text(yaml.safe_dump(damaged))
        with pytest.raises(ModelFileError, match="temperature"):
            load_model(path)


def test_a_python_module_takes_temperatures(model_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "exported.py"
    assert thetad("models", "export", model_path, "--format", "python", "-o", path).code == 0
    spec = importlib.util.spec_from_file_location("exported", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = load_model(model_path)
    rng = np.random.default_rng(0)
    for _ in range(5):
        q, dq, ddq = rng.uniform(-1.0, 1.0, (3, 6))
        T = rng.uniform(-30.0, 50.0, 6)
        Y = regressor(model.robot.model, model.base.layout, q[None], dq[None], ddq[None], temperature=T[None])[0]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_allclose(module.torque(q, dq, ddq, T), Y @ model.theta, atol=1e-8)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for hot in (90.0, 90.1, 95.0):
            module.torque(q, dq, ddq, [20.0, 20.0, hot, 20.0, 20.0, 20.0])
    assert [str(one.message).split(" degC")[0].split()[:4] for one in told] == [["joint", "3", "is", "outside"]]
    for count in (5, 7):
        with pytest.raises(ValueError, match=f"temperature has {count} values: expected 6"):
            module.torque(q, dq, ddq, [20.0] * count)


def test_what_only_gravity_would_show_is_listed_without_it(tmp_path: Path) -> None:
    configs = Path("configs/robots")
    (tmp_path / "space6.urdf").write_bytes((configs / "space6.urdf").read_bytes())
    robot, out = tmp_path / "orbit.toml", tmp_path / "orbit.yaml"
    text = (configs / "space6.toml").read_text()
    robot.write_text(text.replace('gravity = "floor"', 'environment = "microgravity"'))
    path = simulate(tmp_path / "orbit.mcap", robot, seconds=20.0, rate_hz=RATE_HZ)
    done = thetad("identify", path, "--robot", robot, "-o", out, "--json")
    assert done.code == 0, done
    missing = done.json["needs_gravity"]
    names = {row["name"] for row in done.json["parameters"]}
    # the first two axes cross in a point that nothing moves: about it only inertia counts, and nothing but gravity
    # would tell where the masses of their links are
    assert missing == ["mx1", "my1", "mx2", "my2"]
    assert not names & set(missing)
    assert load_model(out).document["needs_gravity"] == missing
    shown = thetad("identify", path, "--robot", robot).out
    assert [line.split("gravity")[1].strip() for line in shown.splitlines() if "undetermined without" in line] == [
        ", ".join(missing)
    ]
    assert "gravity along" not in shown


def test_two_models_are_compared_at_the_reference(model_path: Path) -> None:
    done = thetad("models", "diff", model_path, model_path, "--json")
    assert done.code == 0, done
    assert done.json["differing"] == 0
    assert done.json["friction"]


def test_a_model_without_temperature_has_no_entry() -> None:
    model = load_robot(ROBOT).model
    assert replace(model, friction=Friction()).at_reference_temperature.friction == Friction()
    assert model.at_reference_temperature.friction.temperature == "none"
