"""Real recordings by the commands: consistent fits, published friction, the friction of one joint at three speeds."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rt_core.model.base import base_parameters
from rt_core.model.regressor import regressor
from service.models.document import load_model
from tests.lab.command_line import ROOT, thetad

LWR4_PRIORS = ("kuka_lwr4", "kuka_lwr4_centroepiaggio", "kuka_lwr4_cogimon", "kuka_lwr4_gaz")
#: Published-data reference: RMS [N*m] after a 10 Hz zero-phase filter, Stribeck friction with a free offset.
FRICTION_RMS = {"high": 0.355, "middle": 0.179, "slow": 0.133}

LWR4_ROBOT = """
format = 1
name = "kuka_lwr4"
kinematics = "urdf"
urdf = "{urdf}"
[model]
armature = false
[identification]
cutoff_hz = 4.0
rate_hz = 50.0
trim_s = 1.0
min_velocity = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
"""


@pytest.fixture(scope="module")
def imported(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the recordings, imported by the shipped mappings."""
    folder = tmp_path_factory.mktemp("methods")
    files = [("staubli_tx40", "tx40"), ("franka_panda", "panda_exciting")]
    files += [("kuka_lwr4", f"measurements_{k}") for k in (1, 2)]
    files += [("franka_joint_friction", f"case3_{speed}") for speed in FRICTION_RMS]
    for name, file in files:
        done = thetad("import", data_dir / name / f"{file}.npz", "--mapping", name, "-o", folder / f"{file}.mcap")
        assert done.code == 0, done
    return folder


def identify(recording: Path, robot: object, *more: object) -> dict[str, Any]:
    done = thetad("identify", recording, "--robot", robot, *more, "--json")
    assert done.out, done
    return done.json


def validate(model: Path, recording: Path, *more: object) -> dict[str, Any]:
    done = thetad("validate", model, recording, *more, "--json")
    assert done.out, done
    return done.json


@pytest.mark.parametrize("method", ["wls", "physical"])
def test_tx40_friction_is_the_published_one(data_dir: Path, imported: Path, tmp_path: Path, method: str) -> None:
    """Within 2 % of the published weighted least squares, whose fv5 and fv6 include the coupled wrist motor's."""
    with (data_dir / "staubli_tx40" / "reference_base_parameters.csv").open() as file:
        published = {row["parameter"]: float(row["wls"]) for row in csv.DictReader(file)}
    out = tmp_path / "m.yaml"
    found = identify(imported / "tx40.mcap", "staubli_tx40", "--span", "0.1s:7.5s", "--method", method, "-o", out)
    assert found["verdict"] != "not_explained", found["reasons"]
    model = load_model(out)
    theta = dict(zip(base_parameters(model.robot.model).names, model.theta, strict=True))
    for j in range(1, 7):
        viscous = theta[f"fv{j}"] + (theta["fvm6"] if j > 4 else 0.0)
        assert viscous == pytest.approx(published[f"fv{j}"], rel=0.02)
    for j in range(1, 6):
        assert theta[f"fc{j}"] == pytest.approx(published[f"fs{j}"], rel=0.02)
    if method == "physical":
        assert min(found["estimator"]["smallest_eigenvalue"]) > 0.0


def test_panda_with_possible_links(data_dir: Path, imported: Path, tmp_path: Path) -> None:
    """First 60 % fitted without any prior; on the rest better than the published model at every joint."""
    recording, out = imported / "panda_exciting.mcap", tmp_path / "m.yaml"
    found = identify(recording, "franka_panda", "--span", "0:0.6", "--method", "physical", "-o", out)
    assert min(found["estimator"]["smallest_eigenvalue"]) > 0.0
    assert validate(out, recording, "--span", "0.6:1")["relative_error"] <= 0.013
    published = np.load(data_dir / "franka_panda" / "reference_prediction_gaz2019.npz")
    t = published["t"]
    late = t >= t[0] + 0.6 * (t[-1] - t[0])
    q, dq, ddq, tau, other = (published[k][late] for k in ("q", "dq", "ddq", "tau_meas_filtered", "tau_gaz2019"))
    model = load_model(out)
    arm = model.robot.model
    own = np.array(regressor(arm, base_parameters(arm).layout, q, dq, ddq)) @ model.theta
    rms = [np.sqrt(((tau - predicted) ** 2).mean(axis=0)) for predicted in (own, other)]
    assert (rms[0] < rms[1]).all()


@pytest.mark.parametrize("prior", LWR4_PRIORS)
def test_lwr4_with_each_prior(data_dir: Path, imported: Path, tmp_path: Path, prior: str) -> None:
    """The arm in the frames of its URDFs, so that each of them is a prior as it stands."""
    folder, out, robot = data_dir / "kuka_lwr4", tmp_path / "m.yaml", tmp_path / "lwr4.toml"
    robot.write_text(LWR4_ROBOT.format(urdf=folder / "kuka_lwr4.urdf"))
    found = identify(
        imported / "measurements_1.mcap", robot, "--method", "physical", "--prior", folder / f"{prior}.urdf",
        "-o", out,
    )  # fmt: skip
    assert min(found["estimator"]["smallest_eigenvalue"]) > 0.0
    assert found["verdict"] != "not_explained", found["reasons"]
    assert validate(out, imported / "measurements_2.mcap")["relative_error"] <= 0.025


@pytest.mark.parametrize("law", ["stribeck", pytest.param("coulomb_viscous", marks=pytest.mark.soak)])
def test_friction_of_one_joint_at_three_speeds(imported: Path, tmp_path: Path, law: str) -> None:
    """In-sample no worse than the reference; at other speeds far worse, and no number passes for a parameter."""
    robot = ROOT / "configs/robots/franka_joint_friction.toml"
    if law != "stribeck":
        text = robot.read_text()
        for line in ('friction_quadratic = "none"\n', "friction_cubic = false\n"):
            assert text.count(line) == 1
            text = text.replace(line, "")
        robot = tmp_path / "joint.toml"
        robot.write_text(text.replace('friction = "stribeck"', f'friction = "{law}"'))
    table: dict[tuple[str, str], float] = {}
    for speed in FRICTION_RMS:
        out = tmp_path / f"{speed}.yaml"
        found = identify(imported / f"case3_{speed}.mcap", robot, "-o", out, "--force")
        assert found["settings"]["cutoff_hz"] == 10.0
        values = {p["name"]: p for p in found["parameters"]}
        viscous = values["kv1_1" if law == "stribeck" else "fv1"]
        assert viscous["value"] is None
        assert viscous["status"] in ("undetermined", "invalid")
        for other in FRICTION_RMS:
            table[speed, other] = validate(out, imported / f"case3_{other}.mcap")["rmse"][0]
    for speed, limit in FRICTION_RMS.items():
        assert table[speed, speed] <= limit
        assert table[speed, speed] <= 1.02 * min(table[other, speed] for other in FRICTION_RMS)
    assert table["middle", "slow"] > 3.0 * table["slow", "slow"]
