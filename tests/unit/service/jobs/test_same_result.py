"""Command, job and direct call of every operation give the same bytes."""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import thetad as api
from drivers.files.recordings.recording import write_recording
from service.jobs.execution.runner import work
from service.jobs.execution.spec import Spec
from service.jobs.kinds import KINDS, find_kind
from service.operations.parameter_types import flag_of, option_of
from tests.lab.arms import elastic_rig
from tests.lab.arms.harmonic_drive import record
from tests.lab.arms.small_elastic import moved, robot_text
from tests.lab.command_line import thetad
from tests.lab.jobs.job_run import run, small_arm, spec, workspace
from tests.unit.service.jobs import test_calibrate_kind as measured

#: What differs by nature: when a result was made (and how long it took: there is no clock here), the folders of files,
#: which only commands name, where a command wrote to, and a file with what a command prints.
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
OF_COMMANDS = ("model", "online", "output")
PRINTED = "metrics.json"

#: The command of this kind queues the job.
QUEUED = {"promote"}
COMMANDS = {
    "identify": "identify {recording} -o {out}/model.yaml --report {out}/report.html",
    "validate": "validate {model} {recording} --report {out}/report.html",
    "compare": "compare --report {out}/report.html",
    "excite": "excite {robot} -o {out}",
    "calibrate": "calibrate {measurements} --robot {robot} -o {out}",
    "elastic_joint": "identify {recording} --model elastic_joint -o {out}/elastic.json "
    "--table {out}/stiffness.csv --report {out}/report.html",
    "payload": "payload {model} {recording} --report {out}/report.html",
}
#: Functions of `thetad`; other kinds are run with a workspace.
CALLS: dict[str, Any] = {
    "identify": lambda f, p: api.identify(f.pop("recording"), f.pop("robot"), **f, **p),
    "validate": lambda f, p: api.validate(f["model"], f["recording"], **p),
    "excite": lambda f, p: api.excite(f["robot"], **p),
    "calibrate": lambda f, p: api.calibrate(f["measurements"], f["robot"], **p),
    "payload": lambda f, p: api.payload(
        f["model"], f["recording"], refit_effects=p["refit_effects"], torque_std=0.01 * p["torque_std_percent"]
    ),
}
#: Files, besides those that are fixtures.
FILES: dict[str, Any] = {
    "prior.toml": small_arm,
    "small.toml": lambda path: path.write_text(measured.ROBOT),
    "poses.csv": lambda path: measured.write(path, *measured.rows(orientation=False)),
    "rig.toml": lambda path: path.write_text(elastic_rig.ROBOT),
    "rig.mcap": lambda path: write_recording(path, elastic_rig.recording_of(record(1, lag=2e-3, zero=0.1))),
    "arm3_elastic.toml": lambda path: path.write_text(robot_text()),
    "soft.mcap": lambda path: write_recording(path, moved(elastic=True)),
}
ARM2, STRIBECK2 = ({"recording": f"{arm}_recording", "robot": arm} for arm in ("arm2", "stribeck2"))
SIGNALS = {"cutoff_hz": 12.0, "rate_hz": 60.0, "trim_s": 0.3, "min_velocity": [0.05]}
SEARCH = {"method": "lm", "formulation": "full", "seed": 3, "bounds": {"vb2": [0.02, 0.3]}}
COMPARE = {"methods": ["ols", "iwls", "iv"], "seeds": 2, "seconds": 3.0, "outliers": 0.01, "noise": [0.3, 0.2]}
EXCITE = {"harmonics": 3, "period_s": 5.0, "rate_hz": 20.0, "starts": 2, "iterations": 5}
JOINT = {"joint": "elbow", "sensor": True, "span": "0.01:1", "cutoff_hz": 8.0, "min_velocity": 0.01}
#: Operation, its files, other parameters.
CASES: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    ("identify", ARM2, {"essential": True, **SIGNALS}),
    ("identify", ARM2 | {"prior": "prior.toml"}, {"method": "physical", "weight": 2.0}),
    ("identify", STRIBECK2, SEARCH),
    ("identify", {"recording": "soft.mcap", "robot": "arm3_elastic.toml"}, SIGNALS | {"joints": "elastic", "lag": 0.0}),
    ("validate", {"model": "arm2_model", "recording": "arm2_recording"}, {"span": "0.2:1"}),
    ("validate", {"model": "arm2_model", "recording": "loaded2_recording"}, {}),
    ("compare", {"robot": "arm2"}, COMPARE),
    ("excite", {"robot": "arm2"}, EXCITE),
    ("calibrate", {"measurements": "poses.csv", "robot": "small.toml"}, {"robust": True, "train_share": 0.7}),
    ("elastic_joint", {"recording": "rig.mcap", "robot": "rig.toml"}, JOINT),
    ("payload", {"model": "arm2_model", "recording": "loaded2_recording"},
     {"refit_effects": True, "torque_std_percent": 2.0}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "named", "parameters"), CASES)
def test_command_job_and_call_give_the_same_bytes(
    kind: str, named: dict[str, str], parameters: dict[str, Any], request: pytest.FixtureRequest, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("service.operations.compare.time", SimpleNamespace(perf_counter=lambda: math.nan))
    files = {name: tmp_path / file if file in FILES else request.getfixturevalue(file) for name, file in named.items()}
    for file in FILES.keys() & {*named.values()}:
        FILES[file](tmp_path / file)
    operation = find_kind(kind)
    given = parameters | {name: str(path) for name, path in files.items()}
    inputs = {name: files[name] for name in (*operation.recordings, *operation.models) if name in files}

    def plain(results: dict[str, str]) -> dict[str, str]:
        for path in files.values():
            results = {name: text.replace(str(path), path.name) for name, text in results.items()}
        return {name: TIME.sub("TIME", text) for name, text in results.items()}

    content, results = spec(kind, given, inputs), tmp_path / "job" / "results"
    if parameters is SEARCH:  # in a process of its own
        done = run(results.parent, content, PYTHONHASHSEED="1")[0]
    else:
        results.parent.mkdir()
        done = work(Spec(**content), workspace(results, **inputs))
    by_job = read(results) | {PRINTED: json.dumps(done["metrics"])}
    assert not [name for name, text in by_job.items() for path in files.values() if str(path.parent) in text]
    by_job = plain(by_job)

    (folder := tmp_path / "command").mkdir()
    said = [*COMMANDS[kind].format(**given, out=folder).split(), *options(operation.parameters, given)]
    command = thetad(*said, "--json")
    assert command.code == (0 if done["accepted"] else 1), command
    printed = {k: v for k, v in command.json.items() if k in done["metrics"] or k not in OF_COMMANDS}
    by_command = read(folder) | {PRINTED: json.dumps(printed)}
    assert plain(by_command) == by_job

    if kind == "validate":
        pairs = [f"{name}={value}" for name, value in given.items()]
        here = thetad("jobs", "run", kind, *pairs, "-o", tmp_path / "here", "--json")
        printed = {name: value for name, value in here.json.items() if name != "output"}
        assert here.code == command.code
        assert plain(read(tmp_path / "here") | {PRINTED: json.dumps(printed)}) == by_job

    if kind in CALLS:
        found = CALLS[kind](dict(files), parameters)
        by_call = {PRINTED: json.dumps(found.summary), "report.html": found.html()}
        if isinstance(found.found, dict):
            by_call = {name: content.decode() for name, content in found.found.items()} | by_call
        if kind == "identify":
            found.found.write(tmp_path / "found")
            by_call["model.yaml"] = (tmp_path / "found").read_bytes().decode()
    else:
        outcome = operation.run(operation.read(given), workspace(tmp_path / "call", **inputs))
        by_call = read(tmp_path / "call") | {PRINTED: json.dumps(outcome.metrics)}
    assert plain(by_call) == by_job


def test_every_operation_with_a_command_is_among_them() -> None:
    assert {kind for kind, *_ in CASES} == set(COMMANDS) == set(KINDS) - QUEUED


def read(folder: Path) -> dict[str, str]:
    return {path.name: path.read_bytes().decode() for path in folder.iterdir()}


def options(kind: Any, given: dict[str, Any]) -> list[Any]:
    """What a command takes for parameters: options, or --set for those that have none; files are in `COMMANDS`."""
    said: list[Any] = []
    for name, value in given.items():
        if option_of(kind, name) is None:
            said += [] if "/" in str(value) else ["--set", f"{name}={json.dumps(value)}"]
        elif isinstance(value, dict):
            said += [flag_of(kind, name), *(f"{key}={low}:{high}" for key, (low, high) in value.items())]
        else:
            said += [flag_of(kind, name), *([] if value is True else value if isinstance(value, list) else [value])]
    return said
