"""Real recordings through the command line alone, with the files that the project comes with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import load_robot
from service.models.document import load_model
from tests.lab.command_line import ROOT, mounted, rewrite, thetad


@dataclass(frozen=True)
class Set:
    """A recording, the span to fit and the span to test on, and what the error may be on either."""

    file: str
    fit: str
    test: str
    fit_limit: float
    test_limit: float
    band_hz: float
    window: tuple[float, float]


SETS = {
    "emps": Set("emps.npz", "0:1", "0:1", 0.041, 0.041, 100.0, (0.05, 24.79)),
    "staubli_tx40": Set("tx40.npz", "0.1s:4.91s", "4.91s:7.5s", 0.047, 0.072, 25.0, (0.1, 4.91)),
    "franka_panda": Set("panda_exciting.npz", "0:0.6", "0.6:1", 0.0108, 0.012, 10.0, (0.5, 12.6)),
    "kuka_lwr4": Set("measurements_1.npz", "0:1", "measurements_2.npz", 0.0163, 0.020, 4.0, (1.0, 24.2)),
}


@pytest.fixture(scope="module")
def imported(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the recordings, imported by the shipped mappings."""
    folder = tmp_path_factory.mktemp("real")
    files = [(name, s.file) for name, s in SETS.items()] + [("kuka_lwr4", SETS["kuka_lwr4"].test)]
    for name, file in files:
        mapping = ROOT / "configs/mappings" / f"{name}.toml"
        out = folder / f"{name}_{Path(file).stem}.mcap"
        done = thetad("import", data_dir / name / file, "--mapping", mapping, "-o", out, "--json")
        assert done.code == 0, done
        assert done.json["robot"] == name
    return folder


def recording_of(folder: Path, name: str, file: str | None = None) -> Path:
    return folder / f"{name}_{Path(file or SETS[name].file).stem}.mcap"


def fit(folder: Path, name: str, span: str, *more: object) -> dict[str, Any]:
    done = thetad(
        "identify", recording_of(folder, name), "--robot", ROOT / "configs/robots" / f"{name}.toml", "--method", "wls",
        "--span", span, "--json", *more,
    )  # fmt: skip
    assert done.code == 0, done
    return done.json


@pytest.mark.parametrize("name", SETS)
def test_errors_are_no_worse_than_the_published_ones(imported: Path, tmp_path: Path, name: str) -> None:
    s = SETS[name]
    out = tmp_path / "model.yaml"
    found = fit(imported, name, s.fit, "-o", out)
    assert found["verdict"] != "not_explained"
    assert found["relative_error"] <= s.fit_limit
    assert found["settings"]["cutoff_hz"] == s.band_hz
    assert found["data"]["band_hz"] <= s.band_hz
    # the filters reach a little further than the samples that are cut
    assert s.window[0] <= found["data"]["first_s"] <= s.window[0] + 0.25
    assert s.window[1] - 0.15 <= found["data"]["last_s"] <= s.window[1] + 0.01
    other = s.test.endswith(".npz")
    recording = recording_of(imported, name, s.test if other else None)
    done = thetad("validate", out, recording, *(() if other else ("--span", s.test)), "--json")
    assert done.code == 0, done
    assert done.json["relative_error"] <= s.test_limit
    shown = thetad("validate", out, recording, *(() if other else ("--span", s.test))).out
    assert f"zero-phase low-pass {s.band_hz:g} Hz" in shown
    assert "window" in shown
    if name == "kuka_lwr4":
        assert found["verdict"] != "ok"
        assert any("condition number" in reason for reason in found["reasons"])


def test_emps_parameters_are_the_published_ones(imported: Path) -> None:
    values = {p["name"]: p["value"] for p in fit(imported, "emps", "0:1")["parameters"]}
    published = {"m1": 95.1089, "fv1": 203.5034, "fc1": 20.3935, "off1": -3.1648}
    assert values.keys() == published.keys()
    for name, value in published.items():
        assert values[name] == pytest.approx(value, rel=0.01)


def test_tx40_over_its_whole_window(imported: Path) -> None:
    found = fit(imported, "staubli_tx40", "0.1s:7.5s")
    assert found["relative_error"] <= 0.047
    thresholds = found["settings"]["min_velocity"]
    assert thresholds == [0.0501, 0.0501, 0.0750, 0.0716, 0.0559, 0.1222]
    assert max(found["data"]["rows"]) < 0.98 * 7.4 * 50.0  # standing samples are left out
    values = {p["name"]: p["value"] for p in found["parameters"]}
    # published by the source, WLS
    for name, value in {"fv1": 8.087, "fv2": 5.594, "fv3": 1.983, "fc1": 7.014, "fc2": 8.134, "fc3": 6.283}.items():
        assert values[name] == pytest.approx(value, rel=0.05)


# The gravity trap on real machines ------------------------------------------------------------------


def trapped(folder: Path, name: str, robot: object, recording: Path, tmp_path: Path) -> list[str]:
    out = tmp_path / "m.yaml"
    done = thetad("identify", recording, "--robot", robot, "--span", SETS[name].fit, "-o", out, "--json")
    assert done.code == 1, json.dumps(done.json["reasons"])
    assert done.json["verdict"] == "not_explained"
    assert {p["value"] for p in done.json["parameters"]} == {None}
    assert not out.exists()
    reasons: list[str] = done.json["reasons"]
    assert all(any(c.isdigit() for c in reason) for reason in reasons)
    return reasons


@pytest.mark.parametrize(
    ("name", "gravity"),
    [
        pytest.param("franka_panda", "-x", marks=pytest.mark.soak),
        ("franka_panda", "ceiling"),
        pytest.param("staubli_tx40", "+y", marks=pytest.mark.soak),
        ("staubli_tx40", "ceiling"),
        ("kuka_lwr4", "-x"),
        ("kuka_lwr4", "+y"),
        pytest.param("kuka_lwr4", "ceiling", marks=pytest.mark.soak),
    ],
)
def test_wrong_mounting_direction(imported: Path, tmp_path: Path, name: str, gravity: str) -> None:
    robot = mounted(name, gravity, tmp_path)
    reasons = trapped(imported, name, robot, recording_of(imported, name), tmp_path)
    assert any("gravity along (" in reason for reason in reasons)
    if name != "kuka_lwr4":  # whose slow motion does not tell where it points instead
        assert any("gravity along (0.00, 0.00, -9.81)" in reason for reason in reasons)


@pytest.mark.parametrize("name", ["franka_panda", "staubli_tx40", "kuka_lwr4"])
@pytest.mark.parametrize("kind", ["dead", pytest.param("noise", marks=pytest.mark.soak)])
def test_torque_channel_without_signal(imported: Path, tmp_path: Path, name: str, kind: str) -> None:
    recording = read_recording(recording_of(imported, name))
    model = load_robot(name).model
    tau = recording.channels["tau"].copy()
    spread = tau[:, 1].std()
    tau[:, 1] = 0.5
    if kind == "noise":
        tau[:, 1] += spread * np.random.default_rng(2).normal(size=tau.shape[0])
    path = rewrite(recording, tmp_path / "r.mcap", model, tau=tau)
    reasons = trapped(imported, name, name, path, tmp_path)
    assert any(f"joint {model.joints[1].name}" in reason and "no signal" in reason for reason in reasons)


def test_a_model_of_another_seven_joint_arm_does_not_predict(
    imported: Path, arm7_model: Path, arm7_recording: Path
) -> None:
    done = thetad("validate", arm7_model, recording_of(imported, "franka_panda"), "--json")
    assert done.code == 1
    assert done.json["verdict"] == "not_explained"
    assert load_model(arm7_model).robot.model.name == "arm7"


def test_an_elastic_arm_hung_the_right_way_is_no_false_alarm(data_dir: Path, tmp_path: Path) -> None:
    """Gears that yield and a gas spring are not modelled; the base frame of this arm points down."""
    name = "kuka_kr300_elastic"
    data, recording = data_dir / name / "trajectory_A.npz", tmp_path / "r.mcap"
    assert thetad("import", data, "--mapping", name, "-o", recording).code == 0
    done = thetad("identify", recording, "--robot", name, "--json")
    assert done.code == 0, done
    assert done.json["verdict"] != "ok"
    assert any("condition number" in reason for reason in done.json["reasons"])
    text = (ROOT / "configs/robots" / f"{name}.toml").read_text().replace('gravity = "ceiling"', 'gravity = "floor"')
    (tmp_path / "floor.toml").write_text(text)
    done = thetad("identify", recording, "--robot", tmp_path / "floor.toml", "--json")
    assert done.code == 1
    assert any("gravity along (" in reason for reason in done.json["reasons"])


def test_a_heavy_arm_from_both_of_its_recordings(data_dir: Path, tmp_path: Path) -> None:
    """Ten seconds each do not show all of it: together they do, and the error of each is told."""
    name = "kuka_kr300_elastic"
    parts = [tmp_path / f"{part}.mcap" for part in "AB"]
    for part in parts:
        source = data_dir / name / f"trajectory_{part.stem}.npz"
        assert thetad("import", source, "--mapping", name, "-o", part).code == 0
    done = thetad("identify", *parts, "--robot", name, "--json")
    assert done.code == 0, done
    found = done.json
    assert found["relative_error"] <= 0.121
    each = {Path(part["path"]).stem: part for part in found["recordings"]}
    assert list(each) == ["A", "B"]
    for part in each.values():
        assert part["relative_error"] < 0.16
        assert len(part["rmse"]) == 6
    errors = [part["relative_error"] for part in each.values()]
    assert min(errors) < found["relative_error"] < max(errors)
    thetad("identify", *parts, "--robot", name, "--span", "0:0.5").refused("--span", "there are 2")
    text = thetad("identify", *parts, "--robot", name)
    assert f"{parts[1]}: relative torque error" in text.out
