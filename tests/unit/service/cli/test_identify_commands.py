"""`thetad identify` and `thetad validate` on simulated arms: the contract, the truth, and the gravity trap."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import load_robot
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from service.demo.demo import coverage
from service.models.document import load_model
from tests.lab.command_line import Outcome, mounted, rewrite, simulate, thetad, thetad_process


def identify(*arguments: object, code: int = 0) -> Outcome:
    done = thetad("identify", *arguments)
    assert done.code == code, done
    return done


def test_identify_says_what_the_contract_asks_for(space6_recording: Path, tmp_path: Path) -> None:
    """In a process of its own, so that stdout would hold what anything else may print."""
    out = tmp_path / "model.yaml"
    options = ("--robot", "space6", "--method", "wls", "--span", "0:0.6", "-o", out, "--json")
    done = thetad_process("identify", space6_recording, *options, cwd=tmp_path)
    assert (done.code, done.err) == (0, ""), done
    found = done.json
    assert 0.0 < found["relative_error"] < 0.02
    assert (found["verdict"], found["reasons"], found["method"], found["model"]) == ("ok", [], "wls", str(out))
    assert 1.0 < found["scaled_condition_number"] < found["condition_number"]
    for key in ("rmse", "mae", "max", "R", "explained"):
        assert len(found[key]) == 6
    assert min(found["R"]) > 0.999
    assert [p["name"] for p in found["parameters"]] == list(base_parameters(load_robot("space6").model).names)
    for p in found["parameters"]:
        assert p["status"] in {"determined", "doubtful", "weak", "undetermined"}
        assert (p["value"] is None) == (p["status"] == "undetermined")
        if p["value"]:
            assert p["relative_std"] == pytest.approx(p["std"] / abs(p["value"]))
    assert found["settings"]["cutoff_hz"] == 10.0
    assert found["data"]["first_s"] == pytest.approx(0.5)
    assert found["data"]["last_s"] == pytest.approx(0.6 * 23.998, abs=0.021)
    assert load_model(out).fit_error == found["relative_error"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "words"),
    [(lambda dq: np.concatenate((np.repeat(dq[:1], 5, axis=0), dq[:-5])), "ms behind"),
     (lambda dq: 0.8 * dq, "0.8 times as large"),
     (lambda dq: np.zeros_like(dq), "never changes although the position does")],
)  # fmt: skip
def test_a_velocity_that_does_not_follow_the_position_is_left_out(
    space6_recording: Path, space6_model: Path, tmp_path: Path, spoil: Callable[[np.ndarray], np.ndarray], words: str
) -> None:
    """In the fit, and in a validation with the model that comes of it."""
    recording, robot = read_recording(space6_recording), load_robot("space6")
    dq = recording.channels["dq"].copy()
    dq[:, 2] = spoil(dq[:, 2:3])[:, 0]
    path, out = rewrite(recording, tmp_path / "r.mcap", robot.model, dq=dq), tmp_path / "m.yaml"
    found = identify(path, "--robot", "space6", "--span", "0:0.4", "-o", out, "--json").json
    assert found["verdict"] == "ok"
    assert words in found["notes"][0]
    assert load_model(out).settings.velocity == "position"
    for model in (out, space6_model) if "never" in words else (out,):
        done = thetad("validate", model, path, "--span", "0.6:1", "--json")
        assert done.json["verdict"] == "ok", done
        assert done.json["relative_error"] < 1.5 * found["relative_error"]
        assert (done.json["reasons"], done.json["settings"]["velocity"]) == ([], "position")
        assert any(words in note for note in done.json["notes"]) == (model == space6_model)


def test_validate_says_what_the_contract_asks_for(space6_recording: Path, space6_model: Path) -> None:
    done = thetad("validate", space6_model, space6_recording, "--span", "0.6:1", "--json")
    assert (done.code, done.err) == (0, "")
    found = done.json
    assert found["verdict"] == "ok"
    assert found["relative_error"] < 1.5 * found["fit_relative_error"]
    for key in ("rmse", "mae", "max", "R"):
        assert len(found[key]) == 6
    assert min(found["R"]) > 0.97
    assert found["first_s"] == pytest.approx(0.6 * 23.998, abs=0.021)
    assert all(0 < count <= round((found["last_s"] - found["first_s"]) * 50) + 1 for count in found["rows"])
    assert found["settings"]["trim_s"] == load_model(space6_model).settings.trim


def test_methods_differ_where_joints_do(arm7_recording: Path) -> None:
    errors = []
    for method in ("ols", "iwls"):
        found = identify(arm7_recording, "--robot", "arm7", "--method", method, "--span", "0:0.4", "--json").json
        assert found["method"] == method
        errors.append(found["relative_error"])
    assert errors[0] < errors[1]  # what OLS minimises


def test_true_parameters_lie_within_their_intervals(tmp_path: Path) -> None:
    covered: list[float] = []
    for robot, seed in (("space6", 11), ("arm7", 13)):
        out = tmp_path / f"coverage_{seed}.yaml"
        identify(simulate(tmp_path / f"coverage_{seed}.mcap", robot, seed), "--robot", robot, "-o", out)
        model = load_model(out)
        truth = model.base.theta(standard_parameters(model.robot.model, model.base.standard))
        std = np.sqrt(np.diag(model.covariance))
        covered += (np.abs(model.theta - truth) <= 1.96 * std).tolist()
        friction = [k for k, name in enumerate(model.base.names) if name.startswith(("fv", "fc"))]
        assert coverage(truth[friction], model.theta[friction], 1.5 * std[friction]) > 0.85
        assert np.abs(model.theta[friction] / truth[friction] - 1.0).max() < 0.05
    assert len(covered) == 58 + 69
    assert np.mean(covered) >= 0.90


def test_spans_in_seconds_and_in_fractions_agree(space6_recording: Path, space6_model: Path) -> None:
    duration = read_recording(space6_recording).duration_s
    command = ("validate", space6_model, space6_recording, "--json")
    spans = ("0.6:1", f"{0.6 * duration}s:{duration}s", f"{0.6 * duration}s:", "0.6:")
    found = [thetad(*command, "--span", span).json["relative_error"] for span in spans]
    assert len(set(found)) == 1
    whole = thetad(*command).json
    assert whole["span"] == "0:1"
    assert whole["relative_error"] != found[0]


def test_signal_options(space6_recording: Path) -> None:
    done = identify(
        space6_recording, "--robot", "space6", "--cutoff", "8", "--rate", "20", "--trim", "2", "--min-velocity", "0.1",
        "--span", "0:0.8", "--json",
    )  # fmt: skip
    found = done.json
    given = {"cutoff_hz": 8.0, "rate_hz": 20.0, "filter_order": 4, "trim_s": 2.0, "min_velocity": [0.1] * 6}
    assert found["settings"] == given
    assert found["data"]["row_rate_hz"] == pytest.approx(20.0)
    assert found["data"]["first_s"] == pytest.approx(2.0, abs=0.051)
    assert max(found["data"]["rows"]) < 20.0 * (0.8 * 24.0 - 2.0)


def test_a_joint_that_stands_still(arm7_recording: Path, tmp_path: Path) -> None:
    """It is named; its encoder's last digit is no reason to refuse the data."""
    recording, rng = read_recording(arm7_recording), np.random.default_rng(3)
    q, dq, tau = (recording.channels[name].copy() for name in ("q", "dq", "tau"))
    q[:, 6] = 0.3 + 1e-6 * rng.integers(0, 2, len(q))
    dq[:, 6] = 1e-3 * rng.normal(size=len(q))
    tau[:, 6] = 0.5 + 0.01 * rng.normal(size=len(q))
    path = rewrite(recording, tmp_path / "r.mcap", load_robot("arm7").model, q=q, dq=dq, tau=tau)
    found = identify(path, "--robot", "arm7", "--span", "0:0.4", "--json", code=1).json
    assert found["verdict"] == "not_explained"
    assert any("joint_7" in reason and "no rows" in reason for reason in found["reasons"])


def trapped(done: Outcome, out: Path) -> list[str]:
    """Assert that a result says no, with numbers, and reports no parameters; returns the reasons."""
    assert done.code == 1, done
    found = done.json
    assert (found["verdict"], found["model"]) == ("not_explained", None)
    reasons: list[str] = found["reasons"]
    assert reasons
    assert all(any(c.isdigit() for c in reason) for reason in reasons)
    assert {(p["value"], p["status"]) for p in found["parameters"]} == {(None, "invalid")}
    assert not out.exists()
    assert "not written" in done.err
    return reasons


@pytest.mark.slow
def test_wrong_mounting_direction(arm7_recording: Path, tmp_path: Path) -> None:
    """It is said, and no parameters are reported; only by force is such a model written."""
    out, report = tmp_path / "m.yaml", tmp_path / "r.html"
    common = ("identify", arm7_recording, "--robot", mounted("arm7", "ceiling", tmp_path), "--span", "0:0.3", "-o", out)
    reasons = trapped(thetad(*common, "--json", "--report", report), out)
    (best,) = [reason for reason in reasons if reason.startswith("gravity along (")]
    found = [float(x) for x in best[best.index("(") + 1 : best.index(")")].split(", ")]
    assert found == pytest.approx([0.0, 0.0, -9.81], abs=0.05)
    assert "%" in best
    text = report.read_text(encoding="utf-8")
    assert "no parameters are reported" in text
    assert "<h2>Parameters</h2>" not in text
    done = thetad(*common, "--force")
    assert done.code == 1
    assert done.out.startswith("not_explained: the model does not explain the torque; no parameters are reported\n")
    assert "fc7" not in done.out
    model = load_model(out)
    assert model.document["verdict"] == "not_explained"
    assert {row["value"] for row in model.document["parameters"]} == {None}
    assert thetad("models", "show", out).code == 0


@pytest.mark.parametrize("kind", ["dead", "noise"])
def test_torque_channel_without_signal(space6_recording: Path, kind: str, tmp_path: Path) -> None:
    recording = read_recording(space6_recording)
    tau = recording.channels["tau"].copy()
    if kind == "dead":
        tau[:, 2] = 0.25
    else:
        tau[:, 2] = tau[:, 2].mean() + tau[:, 2].std() * np.random.default_rng(4).normal(size=tau.shape[0])
    path, out = rewrite(recording, tmp_path / "r.mcap", load_robot("space6").model, tau=tau), tmp_path / "m.yaml"
    reasons = trapped(thetad("identify", path, "--robot", "space6", "--span", "0:0.6", "-o", out, "--json"), out)
    assert any("joint_3" in reason for reason in reasons)
    assert any("no signal" in reason for reason in reasons)
