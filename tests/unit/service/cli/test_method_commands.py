"""`thetad identify` with other methods, friction constants in model files, and `thetad compare`, as users run them."""

import re
from pathlib import Path

import numpy as np
import pytest

from rt_core.model.parameters import friction_constants
from service.models.document import load_model
from tests.lab.command_line import Outcome, thetad

ROBOT = "space6_stribeck"


@pytest.mark.slow
def test_constants_are_in_the_model_file_and_used_by_validation(stribeck_model: Path, stribeck_recording: Path) -> None:
    found = load_model(stribeck_model)
    rows, model = found.document["constants"], found.robot.model
    assert [c["name"] for c in rows] == list(friction_constants(model))
    for c in rows:
        if c["status"] in ("determined", "weak"):
            assert c["lower"] <= c["value"] <= c["upper"]
            assert c["used"] == c["value"]
        else:
            assert c["value"] is None
    assert any(c["status"] == "determined" for c in rows)
    np.testing.assert_array_equal(model.dynamics.stribeck_velocity, [c["used"] for c in rows])
    checked = thetad("validate", stribeck_model, stribeck_recording, "--span", "0.7:1", "--json").ok()
    assert checked.json["relative_error"] < 0.02
    page = stribeck_model.with_suffix(".html").read_text()
    assert "vb1" in re.sub(r'src="data:image/png;base64,[^"]*"', "", page)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--bounds", "vb9=0.1:0.2"), ("vb9",)), (("--bounds", "vb1"), ("NAME=LOW:HIGH",)),
        (("--bounds", "vb1=0.2:0.1"), ("vb1",)), (("--method", "wls", "--formulation", "full"), ("full", "pso_lm")),
        (("--method", "physical", "--essential"), ("essential",)),
        (("--method", "wls", "--prior", "space6"), ("prior", "physical")), (("--starts", "0"), ("start",)),
        (("--method", "physical", "--prior", "arm7"), ("7", "6")), (("--span", "0:0.02"), ("rows",)),
    ],
)  # fmt: skip
def test_wrong_estimator_options_are_refused(
    stribeck_recording: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    thetad("identify", stribeck_recording, "--robot", ROBOT, *arguments, "--json").refused(*words)


def compared(*arguments: object) -> Outcome:
    return thetad("compare", "--robot", "space6", "--seeds", 1, "--seconds", 8, *arguments)


def test_compare_puts_methods_side_by_side(tmp_path: Path) -> None:
    done = compared(
        "--methods", "ols", "wls", "full:pso_linear", "--outliers", 0.02, "--json",
        "--report", tmp_path / "c.html", "--plot", tmp_path / "c.png",
    ).ok()  # fmt: skip
    methods = {m["method"]: m for m in done.json["methods"]}
    assert set(methods) == {"ols", "wls", "full:pso_linear"}
    for error in ("error_in_noise", "parameter_error"):
        assert 0.0 < methods["wls"][error] < methods["full:pso_linear"][error]
    assert len(done.json["trials"]) == 3
    assert "full:pso_linear" in (tmp_path / "c.html").read_text()
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--methods", "magic"), ("magic", "known")), (("--seeds", 0), ("seed",)), (("--outliers", 0.7), ("outliers",)),
     (("--noise", 1, 2), ("2", "6")), (("--seconds", 0.1), ("seconds",)),
     (("--robot", "staubli_tx40"), ("inertial", "not physical"))],
)  # fmt: skip
def test_compare_refuses_nonsense(arguments: tuple[object, ...], words: tuple[str, ...]) -> None:
    compared(*arguments).refused(*words)
