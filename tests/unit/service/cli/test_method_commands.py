"""`thetad identify` with other methods, friction constants in model files, and `thetad compare`, as users run them."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from drivers.files.recordings.recording import read_recording
from rt_core.model.parameters import friction_constants
from service.models.document import load_model
from tests.lab.command_line import Outcome, rewrite, simulate, thetad

ROBOT = "space6_stribeck"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(tmp_path_factory.mktemp("stribeck") / "rec.mcap", ROBOT, seed=3, seconds=30.0)


@pytest.fixture(scope="module")
def model(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    done = thetad(
        "identify", recording, "--robot", ROBOT, "--span", "0:0.7", "-o", folder / "model.yaml",
        "--report", folder / "report.html",
    )  # fmt: skip
    assert done.code == 0, done
    assert "constant" in done.out
    assert "vb1" in done.out
    return folder / "model.yaml"


def test_constants_are_in_the_model_file_and_used_by_validation(model: Path, recording: Path) -> None:
    document = yaml.safe_load(model.read_text())
    found = load_model(model)
    names = list(friction_constants(found.robot.model))
    assert [c["name"] for c in document["constants"]] == names
    for c in document["constants"]:
        if c["status"] in ("determined", "weak"):
            assert c["lower"] <= c["value"] <= c["upper"]
            assert c["used"] == c["value"]
        else:
            assert c["value"] is None
    assert any(c["status"] == "determined" for c in document["constants"])
    assert found.robot.model.dynamics is not None
    np.testing.assert_array_equal(
        found.robot.model.dynamics.stribeck_velocity, [c["used"] for c in document["constants"]]
    )
    assert [j["verdict"] for j in document["joints"]]
    checked = thetad("validate", model, recording, "--span", "0.7:1", "--json")
    assert checked.code == 0, checked
    assert checked.json["relative_error"] < 0.02


def test_the_report_shows_verdicts_constants_and_friction(model: Path) -> None:
    page = (model.parent / "report.html").read_text()
    text = re.sub(r'src="data:image/png;base64,[^"]*"', "", page)
    assert text.index("Verdict") < text.index("Joint by joint") < text.index("Parameters")
    assert "vb1" in text
    images = re.findall(r"base64,([A-Za-z0-9+/=]+)", page)
    assert len(images) >= 4
    assert all(base64.b64decode(image).startswith(b"\x89PNG") for image in images)


def test_the_python_export_has_the_same_friction(model: Path, tmp_path: Path) -> None:
    done = thetad("models", "export", model, "--format", "python", "-o", tmp_path / "torque.py")
    assert done.code == 0, done
    scope: dict[str, object] = {}
    exec((tmp_path / "torque.py").read_text(), scope)
    found = load_model(model)
    from rt_core.model.regressor import regressor

    rng = np.random.default_rng(0)
    for _ in range(5):
        q, dq, ddq = rng.normal(size=(3, 6)) * [[1.0], [0.1], [1.0]]
        expected = regressor(found.robot.model, found.base.layout, q[None], dq[None], ddq[None])[0] @ found.theta
        np.testing.assert_allclose(scope["torque"](q, dq, ddq), expected, rtol=1e-9, atol=1e-9)  # type: ignore[operator]


def test_physical_writes_a_full_possible_set(recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "physical.yaml"
    done = thetad("identify", recording, "--robot", ROBOT, "--method", "physical", "-o", out, "--json")
    assert done.code == 0, done
    assert min(done.json["estimator"]["smallest_eigenvalue"]) > 0.0
    found = load_model(out)
    assert found.standard is not None
    np.testing.assert_allclose(found.base.theta(found.standard), found.theta, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--bounds", "vb9=0.1:0.2"), ("vb9",)),
        (("--bounds", "vb1"), ("NAME=LOW:HIGH",)),
        (("--bounds", "vb1=0.2:0.1"), ("vb1",)),
        (("--method", "wls", "--formulation", "full"), ("full", "pso_lm")),
        (("--method", "physical", "--essential"), ("essential",)),
        (("--method", "wls", "--prior", "space6"), ("prior", "physical")),
        (("--starts", "0"), ("start",)),
        (("--method", "physical", "--prior", "arm7"), ("7", "6")),
        (("--span", "0:0.02"), ("rows",)),
    ],
)
def test_wrong_estimator_options_are_refused(
    recording: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    thetad("identify", recording, "--robot", ROBOT, *arguments, "--json").refused(*words)


def test_a_recording_without_numbers_is_refused_by_every_family(recording: Path, tmp_path: Path) -> None:
    original = read_recording(recording)
    from drivers.files.robots.file import load_robot

    tau = original.channels["tau"].copy()
    tau[100:, 2] = np.nan
    path = rewrite(original, tmp_path / "nan.mcap", load_robot(ROBOT).model, tau=tau)
    for method in ("wls", "iwls", "tls", "iv", "physical", "pso_lm"):
        done = thetad("identify", path, "--robot", ROBOT, "--method", method, "--json")
        assert done.code in (1, 2), method
        if done.code == 1:
            assert done.json["verdict"] == "not_explained"


def test_bounds_that_exclude_the_truth_are_said_so(recording: Path) -> None:
    done = thetad("identify", recording, "--robot", ROBOT, "--bounds", "vb1=0.5:2", "--json")
    assert done.json["verdict"] in ("doubtful", "not_explained")
    assert any("vb1" in reason for reason in done.json["reasons"])


def compared(*arguments: object) -> Outcome:
    return thetad("compare", "--robot", "space6", "--seeds", 1, "--seconds", 8, *arguments)


def test_compare_puts_methods_side_by_side(tmp_path: Path) -> None:
    done = compared(
        "--methods", "ols", "wls", "full:pso_linear", "--outliers", 0.02, "--json",
        "--report", tmp_path / "c.html", "--plot", tmp_path / "c.png",
    )  # fmt: skip
    assert done.code == 0, done
    methods = {m["method"]: m for m in done.json["methods"]}
    assert set(methods) == {"ols", "wls", "full:pso_linear"}
    assert methods["wls"]["error_in_noise"] < methods["full:pso_linear"]["error_in_noise"]
    assert 0.0 < methods["wls"]["parameter_error"] < methods["full:pso_linear"]["parameter_error"]
    assert len(done.json["trials"]) == 3
    page = (tmp_path / "c.html").read_text()
    assert "full:pso_linear" in page
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_compare_is_the_same_for_the_same_seeds_and_readable() -> None:
    first, second = (compared("--methods", "wls", "--json").json for _ in range(2))
    for trial in (*first["trials"], *second["trials"]):
        del trial["seconds"]
    for summary in (*first["methods"], *second["methods"]):
        del summary["seconds"]
    assert first == second
    table = compared("--methods", "wls", "iwls").out
    assert re.search(r"wls .* 100 %|iwls .* 100 %", table)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--methods", "magic"), ("magic", "known")),
        (("--seeds", 0), ("seed",)),
        (("--outliers", 0.7), ("outliers",)),
        (("--noise", 1, 2), ("2", "6")),
        (("--noise", -1), ("noise",)),
        (("--seconds", 0.1), ("seconds",)),
        (("--robot", "staubli_tx40"), ("inertial", "not physical")),
    ],
)
def test_compare_refuses_nonsense(arguments: tuple[object, ...], words: tuple[str, ...]) -> None:
    compared(*arguments).refused(*words)
