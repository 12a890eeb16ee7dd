"""Stage `full` through command, job, file and report."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from drivers.files.recordings.recording import write_recording
from service.jobs.kinds import find_kind
from service.operations.workspace import Input, Workspace
from tests.lab.arms.elastic_rig import KM, recording_of
from tests.lab.arms.harmonic_drive import N
from tests.lab.command_line import Outcome, thetad
from tests.unit.rt_core.elastic.test_full import ALL, driven
from tests.unit.service.reports.test_report import self_contained

DRIVE = ("--gear-ratio", N, "--torque-constant", KM, "--sensor")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("full") / "rig.mcap"
    write_recording(path, recording_of(driven(0)))
    return path


def identify(recording: Path, *more: object) -> Outcome:
    return thetad("identify", recording, "--model", "elastic_joint", "--joint", "elbow", *more)


def test_command_and_job_find_the_same_and_draw_both_frictions(recording: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "elastic.json", tmp_path / "report.html"
    done = identify(recording, *DRIVE, "--stage", "full", "--omega-s", 15, "-o", out, "--report", report, "--json")
    assert done.code == 0, done
    kind, folder = find_kind("elastic_joint"), tmp_path / "job"
    given = Input(recording, hashlib.sha256(recording.read_bytes()).hexdigest())
    ws = Workspace(folder, "2025-05-01T12:00:00Z", inputs={"recording": given})
    parameters = {"joint": "elbow", "gear_ratio": N, "torque_constant": KM, "sensor": True, "omega_s": 15.0}
    outcome = kind.run(kind.read({"recording": str(recording), "stage": "full", **parameters}), ws)
    assert outcome.verdict == "ok"
    ours, theirs = json.loads(out.read_text()), json.loads((folder / "elastic.json").read_text())
    assert ours.pop("created")
    assert theirs.pop("created")
    assert ours == theirs
    assert ours["stage"] == "full"
    assert (ours["settings"]["omega1"], ours["settings"]["omega_s"]) == ("estimate", 15.0)
    found = ours["parameters"]
    assert set(found) == set(ALL) - {"omega_s"}
    for name, p in found.items():
        assert p["lower"] < ALL[name] < p["upper"], name
    assert "stage viscous" in ours["online_start"]["reason"]
    page = report.read_text()
    self_contained(page)
    for heading in ("Stiffness", "Friction", "Cyclic friction", "Residual"):
        assert f"<h2>{heading}</h2>" in page
    assert "omega1" in page


def test_friction_that_is_open_is_not_drawn(tmp_path: Path) -> None:
    recording, report = tmp_path / "rig.mcap", tmp_path / "report.html"
    write_recording(recording, recording_of(driven(1, speeds=(0.02, 0.05), loads=(100.0, 300.0, 500.0), hold=0.8)))
    done = identify(recording, *DRIVE, "--stage", "full", "--report", report, "--lag", 1.5e-3)
    assert done.code == 0, done
    assert "omega1" in done.out
    page = report.read_text()
    assert "<h2>Cyclic friction</h2>" not in page
    assert "No law is drawn where these data do not determine it: " in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--omega1", 4), ("--omega1: is of stage full", "stage viscous")),
        (("--stage", "coulomb", "--omega-s", 4), ("--omega-s: is of stage full", "stage coulomb")),
        (("--stage", "full", "--omega1", 0), ("omega1",)),
        (("--stage", "full", "--online"), ("--stage", "viscous")),
        (("--stage", "full", "--joint", "all", "--omega1", 4), ("--omega1",)),
    ],
)
def test_wrong_arguments(recording: Path, arguments: tuple[object, ...], words: tuple[str, ...]) -> None:
    identify(recording, *DRIVE, *arguments).refused(*words)
