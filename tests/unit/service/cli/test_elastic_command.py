"""`thetad identify --model elastic_joint`: a verdict, a report and one error."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drivers.files.recordings.recording import Recording, write_recording
from service.cli.models._identify_elastic import print_elastic
from service.jobs.kinds.elastic_joint import KIND
from service.operations.elastic.joint import VERDICT_TEXT, ElasticJointError, identify_joint
from service.operations.elastic.online import follow_online
from service.reports.elastic import elastic_page
from tests.lab.arms.elastic_rig import KM, recording_of
from tests.lab.arms.harmonic_drive import N, measured, one_after_the_other, record
from tests.lab.command_line import Outcome, thetad
from tests.unit.rt_core.elastic.test_full import ALL, driven
from tests.unit.service.reports.test_report import self_contained

LAG = 2e-3
DRIVE = ("--gear-ratio", N, "--torque-constant", KM)
FULL = ("--joint", "elbow", *DRIVE, "--sensor", "--stage", "full")


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


def test_no_stiffness_is_not_a_success(recording: Path, tmp_path: Path) -> None:
    out, report, table = tmp_path / "elastic.json", tmp_path / "report.html", tmp_path / "stiffness.csv"
    # the first 9 s are one load
    arguments = ("--joint", "elbow", *DRIVE, "--sensor", "--span", "0s:9s", "-o", out)
    done = identify(recording, *arguments, "--report", report, "--table", table, "--json")
    assert done.code == 1
    assert (done.json["verdict"], done.json["model"]) == ("not_determined", None)
    for p in done.json["parameters"].values():
        assert (bool(p["reason"]), p["value"], p["std"], p["lower"], p["upper"]) == (True, None, None, None, None)
    assert {line.rpartition(",")[2] for line in table.read_text().splitlines()[1:]} == {""}
    assert not out.exists()
    assert "these data tell no stiffness" in done.err
    page = self_contained(report.read_text())
    assert VERDICT_TEXT["not_determined"] in page.text
    assert page.tags.count("img") == 1
    done = identify(recording, *arguments, "--force", "--online")
    assert done.code == 1
    assert json.loads(out.read_text())["verdict"] == "not_determined"
    assert "no online estimate: it starts from the off-line values" in done.err


@pytest.mark.slow
def test_online_estimate_that_is_not_valid_says_so_and_uneven_frames_are_one_error(
    rig: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"joint": "elbow", "sensor": True, "gear_ratio": N, "torque_constant": KM, "span": "0:0.5"}
    result = identify_joint(KIND.read({"recording": "rig"} | given), rig, None, created="2025-05-01T12:00:00Z")
    online = follow_online(result)
    assert online.warning is None
    invalid = replace(online, last=replace(online.last, valid=False, reason="b_in comes out negative"))
    print_elastic(result, invalid)
    printed = capsys.readouterr().out
    assert 0 < printed.index("online: not valid: b_in comes out negative") < printed.index("parameter")
    page = self_contained(elastic_page(result, invalid)).text
    assert "online: not valid: b_in comes out negative. Statuses" in page
    even = result.signals.recording
    recording = replace(even, t=np.cumsum(np.resize([0.9, 0.9, 1.2], even.t.size) / 500.0))
    with pytest.raises(ElasticJointError, match=r"0\.0018 s apart in most cases but 0\.002 s in the mean"):
        follow_online(replace(result, signals=replace(result.signals, recording=recording)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("--joint is missing",)),
        (("--joint", "wrist", *DRIVE), ("--joint: the recording has no joint 'wrist'",)),
        (("--joint", 1, *DRIVE), ("--joint: slide slides",)),
        (("--joint", 2, "--gear-ratio", N), ("--torque-constant: is not given",)),
        (("--joint", 2, "--torque-constant", KM), ("--gear-ratio: is not given",)),
        (("--joint", 2, *DRIVE, "--lag", "nan"), ("lag",)),
        (("--joint", 2, *DRIVE, "--span", "3:1"), ("span",)),
        (("--joint", 2, *DRIVE, "--min-velocity", 0.1, 0.2), ("--min-velocity: 2 values",)),
        (("--joint", 2, *DRIVE, "--min-velocity", 1.0), ("rig.mcap, joint elbow: only 0 rows",)),
        (("--joint", 2, *DRIVE, "--forgetting", 0.99), ("--forgetting", "--online")),
        (("--joint", 2, *DRIVE, "--online", "--forgetting", 1.5), ("--forgetting",)),
        (("--joint", 2, *DRIVE, "--online", "--stage", "full"), ("--stage", "viscous")),
        (("--joint", 2, *DRIVE, "--sensor", "--linear", "--online"), ("--lag: the online estimate", "give it")),
        (("--joint", 2, *DRIVE, "--plot", "x.png", "--rate", 20), ("--plot, --rate: not for",)),
        (("--joint", 2, "--robot", "arm7", *DRIVE), ("--robot: arm7 has no joint elbow",)),
        (("--joint", 2, *DRIVE, "--omega1", 4), ("--omega1: is of stage full", "stage viscous")),
        (("--joint", 2, *DRIVE, "--stage", "full", "--omega1", 0), ("omega1",)),
    ],
)
def test_wrong_arguments(
    recording: Path, tmp_path: Path, arguments: tuple[object, ...], words: tuple[str, ...]
) -> None:
    out = tmp_path / "elastic.json"
    identify(recording, *arguments, "-o", out).refused(*words)
    assert not out.exists()


def test_options_of_one_joint_are_not_for_the_arm(recording: Path) -> None:
    of_one = ("--robot", "arm7", "--joint", 2, "--online")
    thetad("identify", recording, *of_one).refused("--joint, --online: not for --model rigid")
    thetad("identify", recording, recording, "--robot", "arm9").refused("holds the same as", "rig.mcap", "once")


@pytest.fixture(scope="module")
def kr300(data_dir: Path, folder: Path) -> tuple[Path, Path]:
    """Both recordings of the arm, as encoders on motors and links."""
    for name in "AB":
        source = data_dir / f"kuka_kr300_elastic/trajectory_{name}.npz"
        thetad("import", source, "--mapping", "kuka_kr300_encoders", "-o", folder / f"{name}.mcap").ok()
    return folder / "A.mcap", folder / "B.mcap"


def test_all_axes_of_a_real_arm_from_both_recordings(kr300: tuple[Path, Path]) -> None:
    arguments = ("--joint", "all", "--robot", "kuka_kr300_elastic", "--stage", "coulomb", "--linear")
    done = thetad("identify", *kr300, "--model", "elastic_joint", *arguments, "--json").ok()
    axes = {joint["joint"]: joint for joint in done.json["joints"]}
    assert axes["axis_1"]["verdict"] == "not_determined"
    assert all(p["value"] is None and p["reason"] for p in axes["axis_1"]["parameters"].values())
    for name in ("axis_2", "axis_3"):
        k1 = axes[name]["parameters"]["k1"]
        whole, each = axes[name]["relative_error"], [r["relative_error"] for r in axes[name]["recordings"]]
        assert min(each) <= whole <= max(each) < 0.25
        assert 3e6 < k1["lower"] < k1["value"] < k1["upper"] < 2e7
        assert {"zero_1", "zero_2"} <= set(axes[name]["parameters"])
    lag = done.json["common_apparent_lag"]
    assert lag["value"] == pytest.approx(2.8e-3, abs=0.05e-3)
    assert lag["lower"] < 2.9e-3 < lag["upper"] < lag["lower"] + 1e-3


def test_options_of_one_joint_are_refused_for_all(kr300: tuple[Path, Path], tmp_path: Path) -> None:
    common = ("identify", *kr300, "--model", "elastic_joint")
    robot = ("--robot", "kuka_kr300_elastic")
    for arguments, *words in (
        ((*robot, "--joint", "all", "-o", tmp_path / "x.json"), "--output", "one joint and one recording"),
        ((*robot, "--joint", "elbow"), "--joint elbow", "axis_1, axis_2, axis_3"),
        ((*robot, "--joint", "all", "--gear-ratio", 100), "--gear-ratio: of one joint", "--robot with the drive of"),
        ((*robot, "--joint", "all", "--zero", 0), "--zero: of one joint", "--robot with the drive of each"),
        ((*robot, "--joint", "axis_2", "--cutoff", "600"), "cut-off 600 Hz"),
        (("--joint", "all"), "--gear-ratio: is not given"),
    ):
        thetad(*common, *arguments).refused(*words)


def test_the_truth_is_found_and_both_frictions_are_drawn(tmp_path: Path) -> None:
    recording, report = tmp_path / "rig.mcap", tmp_path / "report.html"
    write_recording(recording, recording_of(driven(0)))
    done = identify(recording, *FULL, "--omega-s", 15, "--report", report, "--json")
    assert (done.code, done.json["verdict"], done.json["stage"]) == (0, "ok", "full"), done
    settings, found = done.json["settings"], done.json["parameters"]
    assert (settings["omega1"], settings["omega_s"]) == ("estimate", 15.0)
    assert set(found) == set(ALL) - {"omega_s"}
    for name, p in found.items():
        assert p["lower"] < ALL[name] < p["upper"], name
    assert "stage viscous" in done.json["online_start"]["reason"]
    page = report.read_text()
    self_contained(page)
    for heading in ("Stiffness", "Friction", "Cyclic friction", "Residual"):
        assert f"<h2>{heading}</h2>" in page


def test_friction_that_is_open_is_not_drawn(tmp_path: Path) -> None:
    recording, report = tmp_path / "rig.mcap", tmp_path / "report.html"
    write_recording(recording, recording_of(driven(1, speeds=(0.02, 0.05), loads=(100.0, 300.0, 500.0), hold=0.8)))
    identify(recording, *FULL, "--report", report, "--lag", 1.5e-3).ok()
    page = report.read_text()
    assert "<h2>Cyclic friction</h2>" not in page
    assert "No law is drawn where these data do not determine it: " in page
