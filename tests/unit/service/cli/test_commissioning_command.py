"""`thetad commission`: what it refuses before anything starts, and the arm that a rehearsal simulates."""

import json
from pathlib import Path

import numpy as np
import pytest

from drivers.driver import DriverConfigError
from drivers.files.robots.file import load_robot, robot_from_source
from rt_core.model.inertia import mass_com_inertia, transform_inertial
from service.acquisition.sources import make_driver
from service.cli.motion.commission import _STEPS
from service.commission import _site
from service.commission.commissioning import STEP_NAMES
from service.commission.folder import simulated_seed
from service.commission.rehearsal import disturbed, loaded
from service.commission.settings import Payload
from service.config.load import ConfigError, parse_config
from service.io.toml_text import toml_text
from tests.lab.command_line import ROOT, thetad

NOBODY = "tcp://127.0.0.1:9"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["ROBOT", "--arm"]),
        (["no_such_arm"], ["no_such_arm", "no robot of that name"]),
        (["franka_panda"], ["no link parameters", "--arm"]),
        (["emps", "--payload", "heavy"], ["--payload", "2.5:0.1,0,0.08"]),
        (["emps", "--payload", "-1"], ["--payload"]),
        (["emps", "--room", "2"], ["--room", "'2'", "0.9"]),
        (["emps", "--least-r", "1.5"], ["--least-r", "'1.5'"]),
        (["emps", "--speeds", "0.1", "3"], ["--speeds"]),
        (["emps", "--seed", "-1"], ["--seed"]),
        (["emps", "--set", "period_s=4"], ["period_s", "option"]),
        (["emps", "--set", "nonsense=4"], ["nonsense"]),
        (["--arm", "panda", "--control", NOBODY], ["--yes"]),  # without a terminal nobody can be asked
    ],
)
def test_wrong_requests_are_refused_in_one_line(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    thetad("commission", *arguments, "-o", tmp_path / "out").refused(*words)
    assert not (tmp_path / "out").exists()


def test_without_a_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_site, "ANSWER_S", 0.3)
    done = thetad("commission", "--arm", "panda", "--yes", "--control", NOBODY)
    assert (done.code, done.out, "Traceback" in done.err) == (3, "", False)


def test_steps_of_the_help_are_those_that_there_are() -> None:
    assert _STEPS == STEP_NAMES


def test_a_description_without_limits_ends_at_once(tmp_path: Path) -> None:
    """Another seed is of the design, and not of the simulated arm."""
    text = (ROOT / "configs" / "robots" / "arm7.toml").read_text(encoding="utf-8")
    (tmp_path / "loose.toml").write_text(text.replace("upper = 2.9\n", "", 1), encoding="utf-8")
    out = tmp_path / "out"
    command = ("commission", tmp_path / "loose.toml", "-o", out, "--json")
    assert simulated_seed(out, 4) == 4
    done = thetad(*command, "--seed", "3")
    assert done.code == 1
    assert (done.json["failed"], done.json["validated"]) == ("robot", False)
    assert "upper of joint_1" in done.err
    assert "upper of joint_1" in (out / "report.html").read_text(encoding="utf-8")
    thetad(*command, "--seed", "8", "--from", "robot")
    written = json.loads((out / "commission.json").read_text(encoding="utf-8"))
    assert (written["settings"]["seed"], written["simulated_seed"], simulated_seed(out, 9)) == (8, 4, 4)


@pytest.mark.parametrize("name", ["arm7", "space6_dyn"])
def test_the_simulated_arm_differs_from_its_description_and_is_possible(name: str, tmp_path: Path) -> None:
    robot = load_robot(name)
    path = tmp_path / "truth.toml"
    path.write_text(toml_text(disturbed(robot, 3)), encoding="utf-8")
    truth, model = load_robot(path).model, robot.model
    ratio = truth.inertial[:, 0] / model.inertial[:, 0]
    assert (np.abs(ratio - 1.0) <= 0.15).all()
    assert np.abs(ratio - 1.0).max() > 0.03
    np.testing.assert_allclose(truth.inertial, model.inertial * ratio[:, None], rtol=1e-9, atol=1e-12)
    for field in ("coulomb", "armature"):
        share = getattr(truth.dynamics, field) / getattr(model.dynamics, field)
        assert (np.abs(share - 1.0) <= 0.25).all()
        assert np.abs(share - 1.0).max() > 0.03
    np.testing.assert_array_equal(truth.geometry, model.geometry)
    assert disturbed(robot, 3) == disturbed(robot, 3) != disturbed(robot, 4)


@pytest.mark.parametrize("name", ["arm7", "space6"])
def test_a_payload_is_a_body_on_the_flange(name: str) -> None:
    """As a transformation to the flange and back shows: mass, centre, and no inertia about it."""
    robot = load_robot(name)
    empty, model = robot.model.inertial, robot_from_source(loaded(robot.source, Payload(2.0, (0.02, -0.03, 0.1)))).model
    np.testing.assert_allclose(model.inertial[:-1], empty[:-1], atol=1e-12)
    R, p = model.tip_rotation, model.tip_translation
    mass, com, inertia = mass_com_inertia(transform_inertial(model.inertial[-1] - empty[-1], R.T, -R.T @ p))
    assert mass == pytest.approx(2.0)
    np.testing.assert_allclose(com, [0.02, -0.03, 0.1], atol=1e-9)
    np.testing.assert_allclose(inertia, 0.0, atol=1e-9)


@pytest.mark.parametrize("name", ["arm7", "space6", "staubli_tx40", "ur10"])
def test_a_description_is_written_as_it_was_read(name: str, tmp_path: Path) -> None:
    robot, path = load_robot(name), tmp_path / "again.toml"
    path.write_text(toml_text(robot.source), encoding="utf-8")
    assert load_robot(path).sha256 == robot.sha256


def test_wiring_and_another_robot_in_a_configuration(tmp_path: Path) -> None:
    def table(**driver: object) -> dict[str, object]:
        return {"arm": [{"name": "a", "robot": "arm7", "driver": {"kind": "sim", **driver}}]}

    wire = {"joint": "joint_2", "channel": "tau", "factor": -1.0}
    with pytest.raises(ConfigError, match=r"wiring.*mode"):
        parse_config(table(wiring=[wire]), "test", tmp_path)
    model = load_robot("arm7").model
    unknown = parse_config(table(mode="csp", wiring=[wire | {"joint": "knee"}]), "test", tmp_path).arm[0]
    with pytest.raises(DriverConfigError, match="knee"):
        make_driver(unknown, model).open()
    other = parse_config(table(mode="csp", robot="space6"), "test", tmp_path).arm[0]
    with pytest.raises(DriverConfigError, match="they must be the same"):
        make_driver(other, model)
