"""`thetad identify` and `thetad validate` over temperature: -40 to +60 degC, and beyond what was seen."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.model.regressor import regressor
from service.models.document import ModelFileError, load_model, model_text
from service.models.export_code import to_code
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import AmbientSettings, MotionSettings, SimSettings
from tests.lab.command_line import simulate, thetad, write_recording
from tests.lab.exported_c import c_torque
from tests.lab.exported_st import st_torque

ROBOT = "space6_temperature"
SECONDS = 50.0
RATE_HZ = 250.0


def record(path: Path, from_c: float, to_c: float, seed: int, seconds: float = SECONDS, **channels: Any) -> Path:
    """A recording of the arm while the ambient temperature goes from one to the other."""
    model = load_robot(ROBOT).model
    ambient = (AmbientSettings(time_s=0.95 * seconds, ambient_c=to_c),)
    settings = SimSettings(seed=seed, rate_hz=RATE_HZ, ambient_c=from_c, ambient=ambient, thermal_time_s=3.0)
    data = SimulatedArm(model, settings, MotionSettings(seed=seed, candidates=2)).simulate(seconds)
    kept = {name: data.channels[name] for name in channels.get("only", ("q", "dq", "tau", "temperature"))}
    return write_recording(path, model, data.t, kept, RATE_HZ)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("sweep") / "sweep.mcap", -40.0, 60.0, 1)


@pytest.fixture(scope="module")
def model_path(swept: Path) -> Path:
    out = swept.with_name("model.yaml")
    done = thetad("identify", swept, "--robot", ROBOT, "-o", out, "--json")
    assert (done.code, done.json["verdict"]) == (0, "ok"), done.json["reasons"]
    return out


@pytest.mark.slow
def test_compensation_leaves_a_third_of_the_error(swept: Path, model_path: Path, tmp_path: Path) -> None:
    other = record(tmp_path / "other.mcap", 50.0, -35.0, 2, 30.0)
    plain, robot, configs = tmp_path / "plain.yaml", tmp_path / "plain.toml", Path("configs/robots")
    (tmp_path / "space6.urdf").write_bytes((configs / "space6.urdf").read_bytes())
    robot.write_text((configs / f"{ROBOT}.toml").read_text().replace('friction_temperature = "coulomb"', ""))
    assert thetad("identify", swept, "--robot", robot, "-o", plain, "--json").code == 0
    without = thetad("validate", plain, other, "--json").json
    found = thetad("validate", model_path, other, "--json")
    assert (found.code, found.json["verdict"]) == (0, "ok"), found
    assert (found.json["temperature"]["within"], without["temperature"]) == (True, None)
    rmse, uncompensated = np.array(found.json["rmse"]), np.array(without["rmse"])
    assert (rmse < uncompensated / 3.0).all(), (rmse, uncompensated)
    same = thetad("models", "diff", model_path, model_path, "--json")  # at the reference
    assert (same.code, same.json["differing"]) == (0, 0)


def test_outside_the_temperatures_seen_it_says_so(tmp_path: Path) -> None:
    out = tmp_path / "warm.yaml"
    warm = record(tmp_path / "warm.mcap", 15.0, 45.0, 3, 30.0)
    assert thetad("identify", warm, "--robot", ROBOT, "-o", out, "--json").code == 0
    fitted = load_model(out).temperatures
    assert (fitted.lower > 10.0).all()
    assert (fitted.upper < 60.0).all()
    done = thetad("validate", out, record(tmp_path / "cold.mcap", -30.0, -20.0, 4, 10.0), "--json")
    assert done.code == 1
    assert done.json["verdict"] in ("outside_temperatures", "not_explained")
    assert done.json["temperature"]["share_outside"] == [1.0] * 6
    assert sum("its friction is not known there" in reason for reason in done.json["reasons"]) == 6
    inside = record(tmp_path / "inside.mcap", 20.0, 40.0, 5, 10.0)
    assert thetad("validate", out, inside, "--json").json["verdict"] == "ok"


def test_a_recording_without_temperatures_is_refused(tmp_path: Path) -> None:
    bare = record(tmp_path / "bare.mcap", 20.0, 30.0, 1, 5.0, only=("q", "tau"))
    thetad("identify", bare, "--robot", ROBOT).refused("no channel temperature", "friction_temperature")


def test_the_model_file_keeps_its_temperatures(model_path: Path, tmp_path: Path) -> None:
    model, path = load_model(model_path), tmp_path / "damaged.yaml"
    document, seen = dict(model.document), model.temperatures
    assert document["temperature"]["reference_c"] == 20.0
    assert document["temperature"]["lower"] == seen.lower.tolist()
    for change in ({}, {"temperature": None}, {"temperature": document["temperature"] | {"lower": [0.0]}}):
        path.write_text(model_text({k: v for k, v in document.items() if k != "temperature"} | change))
        with pytest.raises(ModelFileError, match="temperature"):
            load_model(path)


def test_modules_take_temperatures(model_path: Path) -> None:
    scope: dict[str, Any] = {"__name__": "exported"}
    exec(thetad("models", "export", model_path, "--format", "python").out, scope)
    torque, model, rng = scope["torque"], load_model(model_path), np.random.default_rng(0)
    q, dq, ddq = rng.uniform(-1.0, 1.0, (3, 5, 6))
    T = rng.uniform(-30.0, 50.0, (5, 6))
    Y = regressor(model.robot.model, model.base.layout, q, dq, ddq, temperature=T)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [torque(*state) for state in zip(q, dq, ddq, T, strict=True)]
    np.testing.assert_allclose(found, Y @ model.theta, atol=1e-8)
    hot = np.where(np.eye(6, dtype=bool)[:5], 90.0, 20.0)
    for language, run in (("c", c_torque), ("st", st_torque)):
        computed, outside = run(to_code(model, language), q, dq, ddq, T)
        np.testing.assert_allclose(computed, found, atol=1e-9)
        assert outside == [0] * 5
        assert run(to_code(model, language), q, dq, ddq, hot)[1] == [1] * 5
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for hot in (90.0, 90.1, 95.0):
            torque(q[0], dq[0], ddq[0], [20.0, 20.0, hot, 20.0, 20.0, 20.0])
    assert [str(one.message).split(" degC")[0].split()[:4] for one in told] == [["joint", "3", "is", "outside"]]
    for count in (5, 7):
        with pytest.raises(ValueError, match=f"temperature has {count} values: expected 6"):
            torque(q[0], dq[0], ddq[0], [20.0] * count)


def test_what_only_gravity_would_show_is_listed_without_it(tmp_path: Path) -> None:
    configs = Path("configs/robots")
    (tmp_path / "space6.urdf").write_bytes((configs / "space6.urdf").read_bytes())
    robot, out = tmp_path / "orbit.toml", tmp_path / "orbit.yaml"
    text = (configs / "space6.toml").read_text()
    robot.write_text(text.replace('gravity = "floor"', 'environment = "microgravity"'))
    path = simulate(tmp_path / "orbit.mcap", robot, seconds=16.0, rate_hz=RATE_HZ)
    done = thetad("identify", path, "--robot", robot, "-o", out).ok()
    # the first two axes cross in a point that nothing moves: about it only inertia counts, and nothing but gravity
    # would tell where the masses of their links are
    missing, document = ["mx1", "my1", "mx2", "my2"], load_model(out).document
    assert document["needs_gravity"] == missing
    assert not {row["name"] for row in document["parameters"]} & set(missing)
    assert [line.split("gravity")[1].strip() for line in done.out.splitlines() if "undetermined without" in line] == [
        ", ".join(missing)
    ]
    assert "gravity along" not in done.out
