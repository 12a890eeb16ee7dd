"""Real recordings through the command line alone, with the files that the project comes with."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rt_core.model.base import base_parameters
from service.models.document import load_model
from tests.lab.command_line import mounted, thetad
from tests.lab.files import FILES
from tests.unit.service.cli.test_identify_commands import trapped


@dataclass(frozen=True)
class Set:
    """A recording, the span to fit and the span or recording to test on, and what the error may be on either."""

    file: str
    fit: str
    test: str
    fit_limit: float
    test_limit: float
    band_hz: float


SETS = {
    "emps": Set("emps", "0:1", "0:1", 0.041, 0.041, 100.0),
    "staubli_tx40": Set("tx40", "0.1s:4.91s", "4.91s:7.5s", 0.047, 0.072, 25.0),
    "franka_panda": Set("panda_exciting", "0:0.6", "0.6:1", 0.0108, 0.012, 10.0),
    "kuka_lwr4": Set("measurements_1", "0:1", "measurements_2", 0.0163, 0.020, 4.0),
}
#: Published-data reference: RMS [N*m] after a 10 Hz zero-phase filter, Stribeck friction with a free offset.
FRICTION_RMS = {"high": 0.355, "middle": 0.179, "slow": 0.133}
#: The arm in the frames of its URDFs, so that each of them is a prior as it stands.
LWR4_ROBOT = (FILES / "lwr4.toml.template").read_text(encoding="utf-8")


def import_all(data_dir: Path, folder: Path, files: Iterable[tuple[str, str]]) -> Path:
    """Import recordings by the shipped mappings."""
    for name, file in files:
        source = data_dir / name / f"{file}.npz"
        done = thetad("import", source, "--mapping", name, "-o", folder / f"{file}.mcap", "--json").ok()
        assert done.json["robot"] == name
    return folder


@pytest.fixture(scope="module")
def imported(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = [(name, s.file) for name, s in SETS.items()] + [("kuka_lwr4", SETS["kuka_lwr4"].test)]
    return import_all(data_dir, tmp_path_factory.mktemp("real"), files)


def fit(recording: Path, robot: object, *more: object) -> dict[str, Any]:
    done = thetad("identify", recording, "--robot", robot, *more, "--json")
    assert done.out, done
    return done.json


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_errors_are_no_worse_than_the_published_ones(imported: Path, tmp_path: Path, name: str) -> None:
    s, out = SETS[name], tmp_path / "model.yaml"
    recording = imported / f"{s.file}.mcap"
    found = fit(recording, name, "--method", "wls", "--span", s.fit, "-o", out)
    assert found["verdict"] != "not_explained"
    assert found["relative_error"] <= s.fit_limit
    assert found["settings"]["cutoff_hz"] == s.band_hz
    assert found["data"]["band_hz"] <= s.band_hz
    assert not any(finding["named"] for finding in found["findings"])
    on = (recording, "--span", s.test) if ":" in s.test else (imported / f"{s.test}.mcap",)
    assert thetad("validate", out, *on, "--json").ok().json["relative_error"] <= s.test_limit
    if name == "emps":
        values = {p["name"]: p["value"] for p in found["parameters"]}
        published = {"m1": 95.1089, "fv1": 203.5034, "fc1": 20.3935, "off1": -3.1648}
        assert values == pytest.approx(published, rel=0.01)
    if name == "kuka_lwr4":
        assert found["verdict"] != "ok"
        assert any("condition number" in reason for reason in found["reasons"])


@pytest.mark.slow
def test_tx40_friction_is_the_published_one(data_dir: Path, imported: Path, tmp_path: Path) -> None:
    """Within 2 % of the published weighted least squares, whose fv5 and fv6 include the coupled wrist motor's."""
    with (data_dir / "staubli_tx40" / "reference_base_parameters.csv").open() as file:
        published = {row["parameter"]: float(row["wls"]) for row in csv.DictReader(file)}
    out = tmp_path / "m.yaml"
    found = fit(imported / "tx40.mcap", "staubli_tx40", "--span", "0.1s:7.5s", "-o", out)
    assert found["verdict"] != "not_explained", found["reasons"]
    assert found["relative_error"] <= 0.047
    assert found["settings"]["min_velocity"] == [0.0501, 0.0501, 0.0750, 0.0716, 0.0559, 0.1222]
    assert max(found["data"]["rows"]) < 0.98 * 7.4 * 50.0  # standing samples are left out
    model = load_model(out)
    theta = dict(zip(base_parameters(model.robot.model).names, model.theta, strict=True))
    for j in range(1, 7):
        viscous = theta[f"fv{j}"] + (theta["fvm6"] if j > 4 else 0.0)
        assert viscous == pytest.approx(published[f"fv{j}"], rel=0.02)
    for j in range(1, 6):
        assert theta[f"fc{j}"] == pytest.approx(published[f"fs{j}"], rel=0.02)


@pytest.mark.slow
def test_lwr4_with_a_prior(data_dir: Path, imported: Path, tmp_path: Path) -> None:
    folder, out, robot = data_dir / "kuka_lwr4", tmp_path / "m.yaml", tmp_path / "lwr4.toml"
    robot.write_text(LWR4_ROBOT.format(urdf=folder / "kuka_lwr4.urdf"))
    prior = ("--method", "physical", "--prior", folder / "kuka_lwr4_gaz.urdf")
    found = fit(imported / "measurements_1.mcap", robot, *prior, "-o", out)
    assert min(found["estimator"]["smallest_eigenvalue"]) > 0.0
    assert found["verdict"] != "not_explained", found["reasons"]
    assert thetad("validate", out, imported / "measurements_2.mcap", "--json").json["relative_error"] <= 0.025


@pytest.mark.slow
def test_friction_of_one_joint_at_three_speeds(data_dir: Path, tmp_path: Path) -> None:
    """In-sample no worse than the reference; at other speeds far worse, and no number passes for a parameter."""
    imported = import_all(data_dir, tmp_path, [("franka_joint_friction", f"case3_{speed}") for speed in FRICTION_RMS])
    table: dict[tuple[str, str], float] = {}
    for speed in FRICTION_RMS:
        out = tmp_path / f"{speed}.yaml"
        found = fit(imported / f"case3_{speed}.mcap", "franka_joint_friction", "-o", out, "--force")
        viscous = next(p for p in found["parameters"] if p["name"] == "kv1_1")
        assert viscous["value"] is None
        assert viscous["status"] in ("undetermined", "invalid")
        for other in FRICTION_RMS:
            done = thetad("validate", out, imported / f"case3_{other}.mcap", "--json")
            table[speed, other] = done.json["rmse"][0]
    for speed, limit in FRICTION_RMS.items():
        assert table[speed, speed] <= limit
        assert table[speed, speed] <= 1.02 * min(table[other, speed] for other in FRICTION_RMS)
    assert table["middle", "slow"] > 3.0 * table["slow", "slow"]


# The gravity trap on real machines ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "gravity", "words"),
    [
        ("franka_panda", "ceiling", "gravity along ("),
        ("kuka_lwr4", "-x", "gravity along ("),  # whose slow motion does not tell where it points instead
        ("staubli_tx40", "ceiling", "gravity along (0.00, 0.00, -9.81)"),  # whose torque is explained either way
    ],
)
def test_wrong_mounting_direction(imported: Path, tmp_path: Path, name: str, gravity: str, words: str) -> None:
    robot, out = mounted(name, gravity, tmp_path), tmp_path / "m.yaml"
    command = ("identify", imported / f"{SETS[name].file}.mcap", "--robot", robot, "--span", SETS[name].fit, "-o", out)
    reasons = trapped(thetad(*command, "--json"), out)
    assert any(words in reason for reason in reasons)


def test_a_model_of_another_seven_joint_arm_does_not_predict(imported: Path, arm7_model: Path) -> None:
    done = thetad("validate", arm7_model, imported / "panda_exciting.mcap", "--json")
    assert (done.code, done.json["verdict"]) == (1, "not_explained")


@pytest.mark.slow
def test_a_heavy_elastic_arm_from_both_of_its_recordings(data_dir: Path, tmp_path: Path) -> None:
    """Gears that yield and a gas spring are not modelled: no false alarm as its base points down, and one otherwise.

    Ten seconds each do not show all of it: together they do, and the error of each is told.
    """
    name = "kuka_kr300_elastic"
    folder = import_all(data_dir, tmp_path, [(name, f"trajectory_{part}") for part in "AB"])
    parts = [folder / f"trajectory_{part}.mcap" for part in "AB"]
    found = thetad("identify", *parts, "--robot", name, "--json").ok().json
    assert found["relative_error"] <= 0.121
    assert [Path(part["path"]) for part in found["recordings"]] == parts
    errors = [part["relative_error"] for part in found["recordings"]]
    assert min(errors) < found["relative_error"] < max(errors) < 0.16
    thetad("identify", *parts, "--robot", name, "--span", "0:0.5").refused("--span", "there are 2")
    assert fit(parts[0], name)["verdict"] not in ("ok", "not_explained")
    floor, text = tmp_path / "floor.toml", Path(f"configs/robots/{name}.toml").read_text()
    floor.write_text(text.replace('gravity = "ceiling"', 'gravity = "floor"'))
    out = tmp_path / "m.yaml"
    reasons = trapped(thetad("identify", parts[0], "--robot", floor, "-o", out, "--json"), out)
    assert any("gravity along (0.00, 0.00, 9.81)" in reason for reason in reasons)
