"""`thetad identify --model elastic_joint`: what the job of this kind finds, with a verdict, a report and one error."""

from __future__ import annotations

import csv
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from drivers.files.recordings.recording import Recording, Span, write_recording
from rt_core.elastic.identify import ElasticVerdict
from service.cli.models._identify_elastic import print_elastic
from service.jobs.kinds import find_kind
from service.jobs.kinds.elastic_joint import KIND
from service.operations.elastic.joint import VERDICT_TEXT, ElasticJointError, identify_joint
from service.operations.elastic.online import follow_online
from service.operations.workspace import Input, Workspace
from service.reports.elastic import elastic_page
from tests.lab.arms.elastic_rig import KM, ROBOT, recording_of
from tests.lab.arms.harmonic_drive import TRUTH, N, measured, one_after_the_other, record
from tests.lab.command_line import ROOT, Outcome, thetad
from tests.unit.service.reports.test_report import self_contained

LAG = 2e-3
DRIVE = ("--gear-ratio", N, "--torque-constant", KM)


@pytest.fixture(scope="module")
def rig() -> Recording:
    clean = record(None, lag=LAG, zero=0.1)
    return recording_of(measured(one_after_the_other(clean, clean), 1))


@pytest.fixture(scope="module")
def recording(rig: Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("elastic") / "rig.mcap"
    write_recording(path, rig)
    return path


def identify(recording: Path, *more: object) -> Outcome:
    return thetad("identify", recording, "--model", "elastic_joint", *more)


def job(recording: Path, folder: Path, **parameters: Any) -> dict[str, Any]:
    kind = find_kind("elastic_joint")
    given = Input(recording, hashlib.sha256(recording.read_bytes()).hexdigest())
    ws = Workspace(folder, "2025-05-01T12:00:00Z", inputs={"recording": given})
    kind.run(kind.read({"recording": str(recording), **parameters}), ws)
    found = json.loads((folder / "elastic.json").read_text())
    assert isinstance(found, dict)
    return found


def test_command_and_job_find_the_same(recording: Path, tmp_path: Path) -> None:
    out, table = tmp_path / "elastic.json", tmp_path / "rows.csv"
    done = identify(
        recording, "--joint", "elbow", *DRIVE, "--sensor", "--span", "0:0.5", "--cutoff", 8, "--min-velocity", 0.01,
        "-o", out, "--table", table, "--json",
    )  # fmt: skip
    assert done.code == 0, done
    folder = tmp_path / "job"
    theirs = job(
        recording, folder, joint="elbow", gear_ratio=N, torque_constant=KM, sensor=True, span="0:0.5", cutoff_hz=8.0,
        min_velocity=0.01,
    )  # fmt: skip
    ours = done.json
    assert ours.pop("model") == str(out)
    assert ours.pop("online") is None
    for found in (ours, theirs):
        found.pop("created")
    assert ours == theirs
    written = json.loads(out.read_text())
    assert written.pop("created").endswith("+00:00")
    assert written == theirs
    assert table.read_text() == (folder / "stiffness.csv").read_text()
    assert (folder / "report.html").stat().st_size > 10_000


def test_truth_within_what_is_said(recording: Path) -> None:
    done = identify(recording, "--joint", 2, *DRIVE, "--sensor", "--json")
    assert done.code == 0, done
    assert done.json["verdict"] == "ok"
    for name, true in (TRUTH | {"lag": LAG, "zero": 0.1}).items():
        p = done.json["parameters"][name]
        assert abs(p["value"] - true) < 4.0 * p["std"], name


def test_robot_file_tells_the_drive(recording: Path, tmp_path: Path) -> None:
    robot = tmp_path / "rig.toml"
    robot.write_text(ROBOT)
    done = identify(recording, "--joint", "elbow", "--robot", robot, "--sensor", "--json")
    assert done.json["drive"] == {"gear_ratio": 290.0, "torque_constant": 0.4, "rotor_inertia": pytest.approx(5e-5)}


def test_no_stiffness_is_not_a_success(recording: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "elastic.json", tmp_path / "report.html"
    # the first 9 s are one load
    arguments = ("--joint", "elbow", *DRIVE, "--sensor", "--span", "0s:9s", "-o", out, "--report", report)
    done = identify(recording, *arguments, "--json")
    assert done.code == 1
    assert (done.json["verdict"], done.json["model"]) == ("not_determined", None)
    assert all(p["value"] is None and p["reason"] for p in done.json["parameters"].values())
    assert not out.exists()
    assert "these data tell no stiffness" in done.err
    page = self_contained(report.read_text())
    assert VERDICT_TEXT["not_determined"] in page.text
    assert page.tags.count("img") == 1
    assert identify(recording, *arguments, "--force").code == 1
    assert json.loads(out.read_text())["verdict"] == "not_determined"


def test_report_has_verdict_parameters_and_figures(recording: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = identify(recording, "--joint", "elbow", *DRIVE, "--sensor", "--lag", LAG, "--report", report)
    assert done.code == 0, done
    page = self_contained(report.read_text())
    assert VERDICT_TEXT["ok"] in page.text
    for words in (*TRUTH, "rig.mcap", "Stiffness", "Friction", "Residual", "N*m*s/rad", "gear ratio", "290"):
        assert words in page.text
    assert page.tags.count("img") == 3
    for name in TRUTH:
        assert name in done.out
    assert done.out.startswith("ok: ")


def test_stage_for_comparison_shows_its_other_fits(recording: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = identify(recording, "--joint", "elbow", *DRIVE, "--sensor", "--stage", "stiffness", "--report", report)
    assert done.code == 0
    page = self_contained(report.read_text())
    assert "For comparison: rows motor" in page.text
    assert "for comparison only" in page.text
    assert page.tags.count("img") == 2  # without friction there is none to draw


def test_verdicts_have_their_words() -> None:
    assert set(VERDICT_TEXT) == set(get_args(ElasticVerdict))


@pytest.mark.soak
def test_online_estimate_ends_where_the_off_line_one_is(recording: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = identify(recording, "--joint", "elbow", *DRIVE, "--sensor", "--online", "--report", report, "--json")
    assert done.code == 0, done
    online, off_line = done.json["online"], done.json["parameters"]
    assert online["valid"]
    for name, p in online["parameters"].items():
        assert p["value"] == pytest.approx(off_line[name]["value"], abs=4.0 * p["std"]), name
        assert p["value"] == pytest.approx(off_line[name]["value"], rel=0.08), name
        assert abs(online["start"][name] / off_line[name]["value"] - 1.0) == pytest.approx(0.3)
    page = self_contained(report.read_text())
    assert "Online estimate" in page.text
    assert page.tags.count("img") == 4
    constant = identify(
        recording, "--joint", "elbow", *DRIVE, "--sensor", "--online", "--forgetting", 0.999, "--json"
    ).json["online"]
    assert constant["parameters"]["k1"]["value"] != online["parameters"]["k1"]["value"]


def test_no_online_estimate_without_stiffness_is_said(recording: Path) -> None:
    done = identify(recording, "--joint", "elbow", *DRIVE, "--sensor", "--span", "0s:9s", "--online")
    assert done.code == 1
    assert "no online estimate: it starts from the off-line values" in done.err


def test_online_estimate_that_is_not_valid_says_so_before_its_values(
    rig: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    job = KIND.read({"recording": "rig", "joint": "elbow", "sensor": True, "gear_ratio": N, "torque_constant": KM})
    result = identify_joint(job, rig, None, created="2025-05-01T12:00:00Z")
    online = follow_online(result)
    assert online.warning is None
    invalid = replace(online, last=replace(online.last, valid=False, reason="b_in comes out negative"))
    print_elastic(result, invalid)
    printed = capsys.readouterr().out
    assert 0 < printed.index("online: not valid: b_in comes out negative") < printed.index("parameter")
    page = self_contained(elastic_page(result, invalid)).text
    assert "online: not valid: b_in comes out negative. Statuses" in page


def test_uneven_frames_are_one_error(rig: Recording) -> None:
    job = KIND.read({"recording": "rig", "joint": "elbow", "sensor": True, "gear_ratio": N, "torque_constant": KM})
    result = identify_joint(job, rig, None, created="2025-05-01T12:00:00Z")
    step = np.resize([0.9, 0.9, 1.2], rig.t.size) / 500.0
    recording = replace(rig, t=np.cumsum(step))
    uneven = replace(result, signals=replace(result.signals, recording=recording))
    with pytest.raises(ElasticJointError, match=r"0\.0018 s apart in most cases but 0\.002 s in the mean"):
        follow_online(uneven)


def test_table_has_every_row(recording: Path, tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    found = identify(recording, "--joint", "elbow", *DRIVE, "--table", table, "--json").json
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == found["row_count"]
    assert list(rows[0]) == ["t_s", "deflection_rad", "motor_torque_nm", "spring_torque_nm"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("--joint is missing",)),
        (("--joint", "wrist", *DRIVE), ("--joint: the recording has no joint 'wrist'",)),
        (("--joint", 1, *DRIVE), ("--joint: slide slides",)),
        (("--joint", 2, "--gear-ratio", N), ("--torque-constant: is not given",)),
        (("--joint", 2, "--torque-constant", KM), ("--gear-ratio: is not given",)),
        (("--joint", 2, *DRIVE, "--lag", 0.5), ("lag",)),
        (("--joint", 2, *DRIVE, "--lag", "nan"), ("lag",)),
        (("--joint", 2, *DRIVE, "--span", "3:1"), ("span",)),
        (("--joint", 2, *DRIVE, "--min-velocity", 0.1, 0.2), ("--min-velocity: 2 values",)),
        (("--joint", 2, *DRIVE, "--min-velocity", 1.0), ("rig.mcap, joint elbow: only 0 rows",)),
        (("--joint", 2, *DRIVE, "--forgetting", 0.99), ("--forgetting", "--online")),
        (("--joint", 2, *DRIVE, "--online", "--forgetting", 1.5), ("--forgetting",)),
        (("--joint", 2, *DRIVE, "--online", "--stage", "coulomb"), ("--stage", "viscous")),
        (("--joint", 2, *DRIVE, "--sensor", "--linear", "--online"), ("--lag: the online estimate", "give it")),
        (("--joint", 2, *DRIVE, "--method", "iwls"), ("--method: not for --model elastic_joint",)),
        (("--joint", 2, *DRIVE, "--plot", "x.png", "--rate", 20), ("--plot, --rate: not for",)),
        (("--joint", 2, "--robot", "arm7", *DRIVE), ("--robot: arm7 has no joint elbow",)),
    ],
)
def test_wrong_arguments(
    recording: Path, tmp_path: Path, arguments: tuple[object, ...], words: tuple[str, ...]
) -> None:
    out = tmp_path / "elastic.json"
    identify(recording, *arguments, "-o", out).refused(*words)
    assert not out.exists()


def test_options_of_one_joint_are_not_for_the_arm(recording: Path) -> None:
    thetad("identify", recording, "--robot", "arm7", "--joint", 2, "--online").refused(
        "--joint, --online: not for --model rigid"
    )
    thetad("identify", recording).refused("--robot is missing")


def test_one_encoder_shows_no_deflection(rig: Recording, tmp_path: Path) -> None:
    path = tmp_path / "one.mcap"
    channels = {name: channel for name, channel in rig.channels.items() if name != "q_motor"}
    write_recording(path, replace(rig, channels=channels).span(None))
    identify(path, "--joint", 2, *DRIVE).refused("no channel q_motor, the angle of the motor", "record both")


def test_axis_with_position_and_voltage_only(data_dir: Path, tmp_path: Path) -> None:
    """EMPS: there is no spring to be seen, and the rigid model is what it was."""
    path, robot = tmp_path / "emps.mcap", ROOT / "configs/robots/emps.toml"
    mapping = ROOT / "configs/mappings/emps.toml"
    assert thetad("import", data_dir / "emps/emps.npz", "--mapping", mapping, "-o", path).code == 0
    identify(path, "--joint", 1, "--gear-ratio", 1, "--robot", robot).refused("--joint: carriage slides")
    plain = thetad("identify", path, "--robot", robot, "--json").json
    chosen = thetad("identify", path, "--robot", robot, "--model", "rigid", "--json").json
    for found in (plain, chosen):
        found.pop("created", None)
    assert chosen == plain
    assert plain["relative_error"] == pytest.approx(0.0400, abs=2e-4)


@pytest.mark.parametrize(("axis", "verdict", "code"), [(1, "not_determined", 1), (3, "doubtful", 0)])
def test_axes_of_a_real_arm(data_dir: Path, tmp_path: Path, axis: int, verdict: str, code: int) -> None:
    path = tmp_path / "kr300.mcap"
    mapping = ROOT / "configs/mappings/kuka_kr300_encoders.toml"
    source = data_dir / "kuka_kr300_elastic/trajectory_B.npz"
    assert thetad("import", source, "--mapping", mapping, "-o", path).code == 0
    done = identify(path, "--joint", axis, "--robot", "kuka_kr300_elastic", "--stage", "coulomb", "--linear", "--json")
    assert (done.code, done.json["verdict"]) == (code, verdict), done
    if axis == 3:
        k1 = done.json["parameters"]["k1"]
        assert k1["value"] == pytest.approx(4.51e6, rel=0.01)
        assert np.isfinite(k1["upper"])


@pytest.fixture(scope="module")
def kr300(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Both recordings of the arm, as encoders on motors and links."""
    folder = tmp_path_factory.mktemp("kr300")
    for name in "AB":
        source = data_dir / f"kuka_kr300_elastic/trajectory_{name}.npz"
        done = thetad("import", source, "--mapping", "kuka_kr300_encoders", "-o", folder / f"{name}.mcap")
        assert done.code == 0, done
    return folder / "A.mcap", folder / "B.mcap"


def test_all_axes_of_a_real_arm_from_both_recordings(kr300: tuple[Path, Path]) -> None:
    arguments = ("--joint", "all", "--robot", "kuka_kr300_elastic", "--stage", "coulomb", "--linear")
    done = thetad("identify", *kr300, "--model", "elastic_joint", *arguments, "--json")
    assert done.code == 0, done
    axes = {joint["joint"]: joint for joint in done.json["joints"]}
    assert axes["axis_1"]["verdict"] == "not_determined"
    assert all(p["value"] is None and p["reason"] for p in axes["axis_1"]["parameters"].values())
    for name in ("axis_2", "axis_3"):
        k1 = axes[name]["parameters"]["k1"]
        whole, each = axes[name]["relative_error"], [r["relative_error"] for r in axes[name]["recordings"]]
        assert len(each) == 2
        assert min(each) <= whole <= max(each) < 0.25
        assert 3e6 < k1["lower"] < k1["value"] < k1["upper"] < 2e7
        assert {"zero_1", "zero_2"} <= set(axes[name]["parameters"])
    lag = done.json["common_apparent_lag"]
    assert 2.8e-3 <= lag["value"] <= 3.0e-3
    assert lag["lower"] < 2.9e-3 < lag["upper"]
    assert lag["value"] == pytest.approx(2.8e-3, abs=0.05e-3)
    assert lag["upper"] - lag["lower"] < 1e-3
    text = thetad("identify", *kr300, "--model", "elastic_joint", *arguments)
    assert "all joints: mean apparent lag 2." in text.out
    assert f"{kr300[1]}: axis_2: relative torque error " in text.out
    assert "the encoders' own lag is larger" in text.out


def test_a_lag_with_friction_in_it_is_not_called_the_encoders(rig: Recording, tmp_path: Path) -> None:
    """The encoder is late by 2 ms, and viscous friction of the motor makes it seem early."""
    paths = [tmp_path / "a.mcap", tmp_path / "b.mcap"]
    for path, span in zip(paths, ("0:0.5", "0.5:1"), strict=True):
        write_recording(path, rig.span(Span.parse(span)))
    arguments = ("--model", "elastic_joint", "--joint", "elbow", *DRIVE, "--linear")
    done = thetad("identify", *paths, *arguments, "--json")
    assert done.code == 0, done
    (joint,) = done.json["joints"]
    assert "encoder_lag" not in joint
    lag = joint["apparent_lag"]
    assert LAG - 1.2 * N**2 * TRUTH["b_in"] / TRUTH["k1"] < lag["value"] < -1e-3
    assert lag["value"] + 10.0 * lag["std"] < LAG  # as an interval of the encoder's own lag it would be wrong
    assert done.json["common_apparent_lag"] is None  # of one joint
    printed = thetad("identify", *paths, *arguments).out.splitlines()
    (line,) = [line for line in printed if line.startswith("elbow: apparent lag -")]
    assert line.endswith("that is the link encoder's less N^2*b_in/k1 of the joint")


def test_a_recording_that_is_given_twice_is_refused(recording: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.mcap"
    copy.write_bytes(recording.read_bytes())
    for more in (("--model", "elastic_joint", "--joint", "elbow", *DRIVE), ("--robot", "arm9")):
        thetad("identify", recording, copy, *more).refused("copy.mcap holds the same as", "rig.mcap", "once")


def test_options_of_one_joint_are_refused_for_all(kr300: tuple[Path, Path], tmp_path: Path) -> None:
    common = ("identify", *kr300, "--model", "elastic_joint", "--robot", "kuka_kr300_elastic")
    thetad(*common, "--joint", "all", "-o", tmp_path / "x.json").refused("--output", "one joint and one recording")
    thetad(*common, "--joint", "elbow").refused("--joint elbow", "axis_1, axis_2, axis_3")
    for drive in (("--gear-ratio", 100), ("--torque-constant", 1), ("--rotor-inertia", 1e-3), ("--zero", 0)):
        thetad(*common, "--joint", "all", *drive).refused(f"{drive[0]}: of one joint", "--robot with the drive of each")


def test_what_a_drive_lacks_is_told_with_the_option(kr300: tuple[Path, Path]) -> None:
    common = ("identify", *kr300, "--model", "elastic_joint")
    thetad(*common, "--joint", "axis_2").refused("--gear-ratio: is not given")
    thetad(*common, "--joint", "all").refused("--gear-ratio: is not given")
    thetad(*common, "--joint", "axis_2", "--robot", "kuka_kr300_elastic", "--cutoff", "600").refused("cut-off 600 Hz")


def test_friction_that_is_undetermined_is_not_drawn(recording: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    arguments = ("--joint", "elbow", *DRIVE, "--sensor", "--linear", "--report", report)
    done = identify(recording, *arguments, "--json")
    assert done.code == 0, done
    open_ = {name for name, p in done.json["parameters"].items() if p["value"] is None}
    assert open_ & {"b_in", "b_out"}  # with a linear spring, the lag acts as viscous friction does
    assert "No law is drawn where these data do not determine it: b_in" in self_contained(report.read_text()).text
    loop = done.json["hysteresis_nm"]["motor"]
    assert loop["std"] > 0.0
