"""`thetad identify` and `thetad validate` on simulated arms: the contract, the truth, units, and the gravity trap."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import yaml

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import load_robot
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from service.demo.demo import coverage
from service.models.document import load_model
from tests.lab.command_line import Outcome, mounted, rewrite, simulate, thetad, thetad_process

STATUS = {"determined", "weak", "undetermined"}


def identify(*arguments: object, code: int = 0) -> Outcome:
    done = thetad("identify", *arguments)
    assert done.code == code, done
    return done


def test_identify_says_what_the_contract_asks_for(space6_recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.yaml"
    done = identify(
        space6_recording, "--robot", "space6", "--method", "wls", "--span", "0:0.6", "-o", out, "--json"
    )  # fmt: skip
    assert done.err == ""
    found = done.json
    assert 0.0 < found["relative_error"] < 0.02
    assert found["verdict"] == "ok"
    assert found["reasons"] == []
    assert found["method"] == "wls"
    assert found["model"] == str(out)
    assert 1.0 < found["scaled_condition_number"] < found["condition_number"]
    for key in ("rmse", "mae", "max", "R", "explained"):
        assert len(found[key]) == 6
    assert min(found["R"]) > 0.999
    model = load_robot("space6").model
    names = base_parameters(model).names
    assert [p["name"] for p in found["parameters"]] == list(names)
    for p in found["parameters"]:
        assert p.keys() >= {"name", "value", "std", "relative_std", "status"}
        assert p["status"] in STATUS
        assert (p["value"] is None) == (p["status"] == "undetermined")
        if p["value"]:
            assert p["relative_std"] == pytest.approx(p["std"] / abs(p["value"]))
    assert found["settings"]["cutoff_hz"] == 10.0
    assert found["data"]["first_s"] == pytest.approx(0.5)
    assert found["data"]["last_s"] == pytest.approx(0.6 * 23.998, abs=0.021)
    loaded = load_model(out)
    assert loaded.fit_error == found["relative_error"]
    assert yaml.safe_load(out.read_text())["verdict"] == "ok"


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
    with_one_look = load_model(space6_model)
    assert found["settings"]["trim_s"] == with_one_look.settings.trim


def test_for_people(space6_recording: Path, space6_model: Path) -> None:
    shown = identify(space6_recording, "--robot", "space6", "--span", "0s:12s").out
    first, *rest = shown.splitlines()
    assert first == "ok: the model explains the torque"
    for words in ("space6", "zero-phase low-pass 10 Hz", "0.5 s to", "|dq| of at least", "fc6", "determined"):
        assert any(words in line for line in rest), words
    shown = thetad("validate", space6_model, space6_recording, "--span", "0.6:1").out
    assert shown.startswith("ok: the model explains the torque\n")
    assert "zero-phase low-pass 10 Hz" in shown
    assert "joint_6" in shown


def test_as_a_process_stdout_holds_nothing_but_the_object(space6_recording: Path, tmp_path: Path) -> None:
    done = thetad_process(
        "identify", space6_recording, "--robot", "space6", "--span", "0:0.3", "-o", tmp_path / "m.yaml", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done
    assert done.err == ""
    assert done.json["verdict"] in ("ok", "weak_excitation")
    refused = thetad_process("identify", tmp_path / "absent.mcap", "--robot", "space6", "--json", cwd=tmp_path)
    refused.refused("absent.mcap")


@pytest.mark.parametrize("method", ["ols", "wls", "iwls"])
def test_methods(arm7_recording: Path, method: str) -> None:
    done = identify(arm7_recording, "--robot", "arm7", "--method", method, "--span", "0:0.6", "--json")
    assert done.json["method"] == method
    truth = load_robot("arm7").model
    base = base_parameters(truth)
    exact = base.theta(standard_parameters(truth, base.standard))
    theta = np.array([math.nan if p["value"] is None else p["value"] for p in done.json["parameters"]])
    known = np.isfinite(theta)
    assert known.mean() > 0.8
    scale = np.abs(exact[known]).max()
    assert np.abs(theta[known] - exact[known]).max() < 0.05 * scale


def test_methods_differ_where_joints_do(arm7_recording: Path) -> None:
    found = {
        m: identify(arm7_recording, "--robot", "arm7", "--method", m, "--span", "0:0.4", "--json").json
        for m in ("ols", "wls")
    }
    assert found["ols"]["relative_error"] < found["wls"]["relative_error"]  # what OLS minimises
    first = [p["value"] for p in found["ols"]["parameters"]]
    assert first != [p["value"] for p in found["wls"]["parameters"]]


@pytest.mark.parametrize(
    "arms",
    [
        (("space6", 11), ("arm7", 13)),
        pytest.param((("space6", 11), ("space6", 12), ("arm7", 13)), marks=pytest.mark.soak),
    ],
)
def test_true_parameters_lie_within_their_intervals(arms: tuple[tuple[str, int], ...], tmp_path: Path) -> None:
    covered: list[float] = []
    for robot, seed in arms:
        out = tmp_path / f"coverage_{seed}.yaml"
        identify(simulate(tmp_path / f"coverage_{seed}.mcap", robot, seed), "--robot", robot, "-o", out)
        model = load_model(out)
        truth = model.base.theta(standard_parameters(model.robot.model, model.base.standard))
        std = np.sqrt(np.diag(model.covariance))
        covered += (np.abs(model.theta - truth) <= 1.96 * std).tolist()
        friction = [k for k, name in enumerate(model.base.names) if name.startswith(("fv", "fc"))]
        assert coverage(truth[friction], model.theta[friction], 1.5 * std[friction]) > 0.85
        assert np.abs(model.theta[friction] / truth[friction] - 1.0).max() < 0.05
    assert len(covered) == sum({"space6": 58, "arm7": 69}[robot] for robot, _ in arms)
    assert np.mean(covered) >= 0.90


def test_spans_in_seconds_and_in_fractions_agree(space6_recording: Path, space6_model: Path) -> None:
    duration = read_recording(space6_recording).duration_s
    spans = ("0.6:1", f"{0.6 * duration}s:{duration}s", f"{0.6 * duration}s:", "0.6:")
    found = [
        thetad("validate", space6_model, space6_recording, "--span", span, "--json").json["relative_error"]
        for span in spans
    ]
    assert len(set(found)) == 1
    whole = thetad("validate", space6_model, space6_recording, "--json").json
    assert whole["span"] == "0:1"
    assert whole["relative_error"] != found[0]


def test_signal_options(space6_recording: Path) -> None:
    done = identify(
        space6_recording, "--robot", "space6", "--cutoff", "8", "--rate", "20", "--trim", "2", "--min-velocity", "0.1",
        "--span", "0:0.8", "--json",
    )  # fmt: skip
    found = done.json
    assert found["settings"] == {
        "cutoff_hz": 8.0,
        "rate_hz": 20.0,
        "filter_order": 4,
        "trim_s": 2.0,
        "min_velocity": [0.1] * 6,
    }
    assert found["data"]["row_rate_hz"] == pytest.approx(20.0)
    assert found["data"]["first_s"] == pytest.approx(2.0, abs=0.051)
    assert max(found["data"]["rows"]) < 20.0 * (0.8 * 24.0 - 2.0)


def test_a_joint_that_stands_still(work: Path, tmp_path: Path) -> None:
    """Its parameters are named as undetermined; its encoder's last digit is no reason to refuse the data."""
    recording = read_recording(simulate(work / "still.mcap", "arm7", seed=5, seconds=16.0))
    model = load_robot("arm7").model
    rng = np.random.default_rng(3)
    q, dq, tau = (recording.channels[name].copy() for name in ("q", "dq", "tau"))
    q[:, 6] = 0.3 + 1e-6 * rng.integers(0, 2, q.shape[0])
    dq[:, 6] = 1e-3 * rng.normal(size=q.shape[0])
    tau[:, 6] = 0.5 + 0.01 * rng.normal(size=q.shape[0])
    path = rewrite(recording, tmp_path / "r.mcap", model, q=q, dq=dq, tau=tau)
    found = identify(path, "--robot", "arm7", "-o", tmp_path / "m.yaml", "--json", code=1).json
    assert found["verdict"] == "not_explained"
    assert any("joint_7" in reason and "no rows" in reason for reason in found["reasons"])


# A robot, a mapping and a log made from the documentation alone -------------------------------------

ROBOT = """
format = 1
name = "lab_arm"
kinematics = "mdh"
gravity = "-x"                          # bolted to a wall; x of the base points up

[[joint]]
name = "turn"
d = 0.35
lower_deg = -170
upper_deg = 170
velocity_deg = 120
effort = 90.0
{truth_1}
[[joint]]
name = "swing"
alpha_deg = -90
theta_deg = -90
lower_deg = -110
upper_deg = 110
velocity_deg = 120
effort = 90.0
{truth_2}
[[joint]]
name = "reach"
kind = "prismatic"
a = 0.30
alpha_deg = 90
d = 0.10
lower = 0.0
upper = 0.25
velocity = 0.5
effort = 200.0
{truth_3}
[transmission]
gear_ratio = [100.0, -100.0, 314.16]
torque_constant = [0.11, 0.11, 0.08]

[identification]
cutoff_hz = 10.0
"""
TRUTH = {
    "truth_1": "mass = 6.0\ncom = [0.05, -0.02, -0.1]\ninertia = [0.1, 0.0, 0.12, 0.0, 0.0, 0.08]\n"
    "armature = 0.5\nviscous = 3.0\ncoulomb = 2.0\n",
    "truth_2": "mass = 4.0\ncom = [0.15, 0.01, 0.02]\ninertia = [0.03, 0.0, 0.08, 0.0, 0.0, 0.07]\n"
    "armature = 0.4\nviscous = 2.0\ncoulomb = 1.5\n",
    "truth_3": "mass = 2.5\ncom = [0.0, 0.01, 0.1]\ninertia = [0.01, 0.0, 0.01, 0.0, 0.0, 0.005]\n"
    "armature = 3.0\nviscous = 60.0\ncoulomb = 8.0\n",
}
MAPPING = """
format = 1
name = "lab"
robot = "lab.toml"

[time]
column = "time_ms"
unit = "ms"

[q]
columns = "pos_{joint}"                 # pos_turn, pos_swing, pos_reach
unit = "deg"
side = "motor"

[dq]
columns = ["rpm1", "rpm2", "rpm3"]
unit = "rpm"
side = "motor"

[current]
columns = ["i1_mA", "i2_mA", "i3_mA"]
unit = "mA"
sign = [1, 1, -1]                       # the third drive counts the other way round

[tau]
from_current = true
"""


def test_a_users_own_robot_mapping_and_log(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(ROBOT.format(**dict.fromkeys(TRUTH, "")))
    (tmp_path / "true.toml").write_text(ROBOT.format(**TRUTH))
    (tmp_path / "lab_map.toml").write_text(MAPPING)
    direct = simulate(tmp_path / "direct.mcap", tmp_path / "true.toml", seed=3, seconds=20.0)
    recording = read_recording(direct)
    ratio, constant = np.array([100.0, -100.0, 314.16]), np.array([0.11, 0.11, 0.08])
    q, dq, tau = (recording.channels[name] for name in ("q", "dq", "tau"))
    current = tau / (ratio * constant)
    columns = (
        recording.t * 1e3,
        *np.degrees(q * ratio).T,
        *(dq * ratio * 60.0 / (2.0 * np.pi)).T,
        *(1e3 * current * [1, 1, -1]).T,
    )
    names = "time_ms,pos_turn,pos_swing,pos_reach,rpm1,rpm2,rpm3,i1_mA,i2_mA,i3_mA"
    np.savetxt(tmp_path / "log.csv", np.stack(columns, axis=1), delimiter=",", header=names, comments="", fmt="%.12g")
    done = thetad("import", tmp_path / "log.csv", "--mapping", tmp_path / "lab_map.toml", "-o", tmp_path / "r.mcap")
    assert done.code == 0, done
    found = {}
    for name, source in (("direct", direct), ("log", tmp_path / "r.mcap")):
        out = tmp_path / f"{name}.yaml"
        identify(source, "--robot", tmp_path / "lab.toml", "--span", "0:0.6", "-o", out)
        found[name] = load_model(out)
        done = thetad("validate", out, source, "--span", "0.6:1", "--json")
        assert done.code == 0, done
        assert done.json["relative_error"] < 0.02
    np.testing.assert_allclose(
        found["log"].theta, found["direct"].theta, rtol=1e-5, atol=1e-6 * np.abs(found["direct"].theta).max()
    )
    model = load_robot(tmp_path / "true.toml").model
    truth = found["log"].base.theta(standard_parameters(model, found["log"].base.standard))
    assert coverage(truth, found["log"].theta, np.sqrt(np.diag(found["log"].covariance))) >= 0.85


# The gravity trap -----------------------------------------------------------------------------------


def trapped(done: Outcome, out: Path) -> list[str]:
    """Assert that a result says no, with numbers, and reports no parameters; returns the reasons."""
    assert done.code == 1, done
    found = done.json
    assert found["verdict"] == "not_explained"
    assert found["reasons"]
    assert all(any(c.isdigit() for c in reason) for reason in found["reasons"])
    assert {p["value"] for p in found["parameters"]} == {None}
    assert {p["status"] for p in found["parameters"]} == {"invalid"}
    assert found["model"] is None
    assert not out.exists()
    assert "not written" in done.err
    reasons: list[str] = found["reasons"]
    return reasons


@pytest.mark.parametrize(
    ("gravity", "robot"),
    [
        ("+y", "arm7"),
        ("ceiling", "arm7"),
        *(pytest.param(gravity, "arm7", marks=pytest.mark.soak) for gravity in ("-x", "microgravity")),
        *(
            pytest.param(gravity, "space6", marks=pytest.mark.soak)
            for gravity in ("-x", "+y", "ceiling", "microgravity")
        ),
    ],
)
def test_wrong_mounting_direction(robot: str, gravity: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    recording = request.getfixturevalue(f"{robot}_recording")
    out = tmp_path / "m.yaml"
    report = tmp_path / "r.html"
    done = thetad(
        "identify", recording, "--robot", mounted(robot, gravity, tmp_path), "--span", "0:0.6", "-o", out, "--json",
        "--report", report,
    )  # fmt: skip
    reasons = trapped(done, out)
    best = [reason for reason in reasons if reason.startswith("gravity along (0.00, 0.00, -9.81)")]
    assert best
    assert "%" in best[0]
    text = report.read_text(encoding="utf-8")
    assert "no parameters are reported" in text
    assert "<h2>Parameters</h2>" not in text


@pytest.mark.parametrize("kind", ["dead", "noise", "swapped"])
@pytest.mark.parametrize("robot", ["space6", pytest.param("arm7", marks=pytest.mark.soak)])
def test_torque_channel_without_signal(robot: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    recording = read_recording(request.getfixturevalue(f"{robot}_recording"))
    model = load_robot(robot).model
    tau = recording.channels["tau"].copy()
    rng = np.random.default_rng(4)
    if kind == "dead":
        tau[:, 2] = 0.25
    elif kind == "noise":
        tau[:, 2] = tau[:, 2].mean() + tau[:, 2].std() * rng.normal(size=tau.shape[0])
    else:
        tau[:, [2, 3]] = tau[:, [3, 2]]
    path = rewrite(recording, tmp_path / "r.mcap", model, tau=tau)
    out = tmp_path / "m.yaml"
    reasons = trapped(thetad("identify", path, "--robot", robot, "--span", "0:0.6", "-o", out, "--json"), out)
    assert any("joint_3" in reason or (kind == "swapped" and "joint_4" in reason) for reason in reasons)
    assert any("no signal" in reason for reason in reasons)


def test_force_writes_it_anyway(arm7_recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.yaml"
    robot = mounted("arm7", "ceiling", tmp_path)
    done = thetad("identify", arm7_recording, "--robot", robot, "--span", "0:0.6", "-o", out, "--force")
    assert done.code == 1
    model = load_model(out)
    assert model.document["verdict"] == "not_explained"
    assert {row["value"] for row in model.document["parameters"]} == {None}
    assert thetad("models", "show", out).code == 0
    assert done.out.startswith("not_explained: the model does not explain the torque; no parameters are reported\n")
    assert "fc7" not in done.out
    shown = thetad("identify", arm7_recording, "--robot", robot, "--span", "0:0.6")
    assert shown.code == 1
    assert shown.out.startswith("not_explained: the model does not explain the torque; no parameters are reported\n")
    assert "fc7" not in shown.out


def test_model_of_another_arm_does_not_predict(space6_model: Path, space6_recording: Path, tmp_path: Path) -> None:
    """A model identified on one mounting, used on another."""
    model = load_robot(mounted("space6", "-x", tmp_path)).model
    other = simulate(tmp_path / "wall.mcap", model, seed=4, seconds=12.0)
    done = thetad("validate", space6_model, other, "--json")
    assert done.code == 1
    assert done.json["verdict"] in ("not_explained", "worse_than_fit")
    assert json.dumps(done.json["reasons"]).count("%") > 0
