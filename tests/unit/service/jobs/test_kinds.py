"""Each kind of job gives what its command gives, the same bytes again; parts give the whole; nonsense is refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import load_robot
from service.jobs.execution.code_version import code_version, sources_sha256
from service.jobs.execution.spec import read_spec
from service.jobs.kinds import find_kind
from service.models.document import load_model
from service.operations.errors import OperationCancelledError, OperationError
from service.operations.inputs import open_robot
from service.operations.kind import FanOut
from service.protocol.json_values import json_values
from tests.lab.command_line import rewrite, thetad
from tests.lab.jobs.job_run import CREATED, results, run, run_here, spec, workspace

#: Where files were, and when; all else of a result has to be the same.
PLACES = ("model", "recording", "loaded", "created")
#: Parameters of a job, and the command's options that say the same.
IDENTIFY: list[Any] = [
    ("arm2", {"essential": True, "cutoff_hz": 12.0, "rate_hz": 40.0, "trim_s": 0.3, "min_velocity": [0.05]},
     ["--essential", "--cutoff", "12", "--rate", "40", "--trim", "0.3", "--min-velocity", "0.05"]),
    ("arm2", {"method": "physical", "prior": "PRIOR", "weight": 2.0}, ["--method", "physical", "--weight", "2"]),
    ("stribeck2", {"method": "pso", "formulation": "full", "seed": 3, "bounds": {"vb2": [0.02, 0.3]}},
     ["--method", "pso", "--formulation", "full", "--seed", "3", "--bounds", "vb2=0.02:0.3"]),
]  # fmt: skip


def same(job: dict[str, Any], command: dict[str, Any]) -> None:
    """Equal but for where the files were."""
    assert set(job) - {"model"} == set(command) - {"model"}
    for name in set(job) - set(PLACES):
        assert job[name] == command[name], name


def untimed(document: dict[str, Any]) -> dict[str, Any]:
    """A comparison without the times it took."""
    rows = {
        name: [{k: v for k, v in row.items() if k != "seconds"} for row in document[name]]
        for name in ("methods", "trials")
    }
    return document | rows


@pytest.mark.slow
@pytest.mark.parametrize(("arm", "parameters", "options"), IDENTIFY)
def test_identify_is_the_command(
    arm: str, parameters: dict[str, Any], options: list[str], request: pytest.FixtureRequest, arm2: Path, tmp_path: Path
) -> None:
    robot, recording = request.getfixturevalue(arm), request.getfixturevalue(f"{arm}_recording")
    if "prior" in parameters:
        parameters = parameters | {"prior": str(arm2)}
        options = [*options, "--prior", str(arm2)]
    job = run_here("identify", {"recording": "r", "robot": str(robot), **parameters}, tmp_path, recording=recording)
    out, page = tmp_path / "command.yaml", tmp_path / "command.html"
    command = thetad("identify", recording, "--robot", robot, *options, "--json", "-o", out, "--report", page)
    assert command.code == (0 if job.accepted else 1)
    same(job.metrics, command.json)
    assert job.verdict == command.json["verdict"]
    assert job.metrics["created"] == CREATED
    made, expected = load_model(tmp_path / "model.yaml"), load_model(out)
    assert made.document | {"created": ""} == expected.document | {"created": ""}
    # the command's page names the recording by its whole path
    assert (tmp_path / "report.html").read_text() == page.read_text().replace(str(recording), recording.name)


def test_a_model_that_explains_nothing_is_not_written(arm2: Path, arm2_recording: Path, tmp_path: Path) -> None:
    good = read_recording(arm2_recording)
    backwards = rewrite(good, tmp_path / "bad.mcap", load_robot(arm2).model, tau=good.channels["tau"][::-1])
    job = run_here("identify", {"recording": "r", "robot": str(arm2)}, tmp_path / "job", recording=backwards)
    assert (job.verdict, job.accepted) == ("not_explained", False)
    assert {path.name for path in (tmp_path / "job").iterdir()} == {"report.html", "metrics.json"}
    assert all(row["value"] is None for row in job.metrics["parameters"])
    command = thetad("identify", backwards, "--robot", arm2, "--json")
    assert command.code == 1
    same(job.metrics, command.json)


def test_a_cancelled_identify_stops_in_its_search(stribeck2: Path, stribeck2_recording: Path, tmp_path: Path) -> None:
    kind, heard = find_kind("identify"), list[str]()
    ws = workspace(tmp_path / "run", recording=stribeck2_recording)
    ws.report = lambda _, what: heard.append(what)
    ws.cancelled = lambda: sum(what.startswith("search") for what in heard) >= 2
    with pytest.raises(OperationCancelledError):
        kind.run(kind.read({"recording": "r", "robot": str(stribeck2), "method": "pso"}), ws)
    assert not list((tmp_path / "run").iterdir())


def test_validate_is_the_command(
    arm2_model: Path, arm2_recording: Path, loaded2_recording: Path, tmp_path: Path
) -> None:
    for recording, accepted in ((arm2_recording, True), (loaded2_recording, False)):
        files = {"model": arm2_model, "recording": recording}
        job = run_here("validate", {"model": "m", "recording": "r", "span": "0.2:1"}, tmp_path, **files)
        page = tmp_path / "command.html"
        command = thetad("validate", arm2_model, recording, "--span", "0.2:1", "--json", "--report", page)
        assert job.accepted == accepted == (command.code == 0), job
        same(job.metrics, command.json)
        shown = page.read_text().replace(str(recording), recording.name).replace(str(arm2_model), arm2_model.name)
        assert (tmp_path / "report.html").read_text() == shown


def test_compare_is_the_command_and_its_parts(arm2: Path, tmp_path: Path) -> None:
    names = ["ols", "iwls", "iv", "physical"]
    parameters = {"robot": str(arm2), "methods": names, "seeds": 2, "seconds": 3.0, "outliers": 0.01}
    parameters["noise"] = [0.3, 0.2]
    whole = run_here("compare", parameters, tmp_path / "whole")
    options = ["--seeds", "2", "--seconds", "3", "--outliers", "0.01", "--noise", "0.3", "0.2"]
    command = thetad("compare", "--robot", arm2, "--methods", *names, *options, "--json")
    assert command.code == 0
    assert untimed(whole.metrics) == untimed(command.json)
    kind, fan_out = parted("compare")
    read = kind.read(parameters)
    assert kind.divided(read)
    assert not kind.divided(kind.read(parameters | {"seeds": 1}))
    parts = [fan_out.run_part(read, part, workspace(tmp_path / "part")) for part in reversed(fan_out.split(read))]
    gathered = fan_out.gather(read, parts[::-1], workspace(tmp_path / "gathered"))
    assert gathered == whole
    for name in ("report.html", "metrics.json"):
        assert (tmp_path / "gathered" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_many_starts_give_the_cheapest(stribeck2: Path, stribeck2_recording: Path, tmp_path: Path) -> None:
    parameters = {"recording": "r", "robot": str(stribeck2), "method": "pso", "seed": 4, "multi_start": 2}
    kind, fan_out = parted("identify")
    read = kind.read(parameters)
    assert kind.divided(read)
    surroundings = workspace(tmp_path / "part", recording=stribeck2_recording)
    parts = [fan_out.run_part(read, part, surroundings) for part in fan_out.split(read)]
    assert list((tmp_path / "part").iterdir()) == []
    job = fan_out.gather(read, parts, workspace(tmp_path / "job", recording=stribeck2_recording))
    options = ["--robot", stribeck2, "--method", "pso", "--json"]
    each = [thetad("identify", stribeck2_recording, *options, "--seed", seed).json for seed in (4, 5)]
    costs = [found["estimator"]["cost"] for found in each]
    assert costs[0] != costs[1]
    tried = job.metrics.pop("multi_start")
    assert [(row["seed"], row["cost"]) for row in tried] == list(zip((4, 5), costs, strict=True))
    same(job.metrics, each[costs.index(min(costs))])
    assert load_model(tmp_path / "job" / "model.yaml").document["estimator"]["cost"] == min(costs)


def parted(name: str) -> tuple[Any, FanOut[Any]]:
    kind = find_kind(name)
    assert kind.fan_out is not None
    return kind, kind.fan_out


RECORDED = {"recording": "r"}


@pytest.mark.parametrize(
    ("kind", "parameters", "words"),
    [
        ("identify", {}, "recording: is missing"),
        ("identify", RECORDED | {"method": "best"}, "method: should be 'ols'"),
        ("identify", RECORDED | {"span": "0.6:0.2"}, "span: span 0.6:0.2: its start is not before its end"),
        ("identify", RECORDED | {"cutof_hz": 3.0}, "cutof_hz: is no parameter; parameters of identify: recording"),
        ("identify", RECORDED | {"cutoff_hz": -1.0}, "cutoff_hz"),
        ("identify", RECORDED | {"min_velocity": [0.1, -1.0]}, "min_velocity[1]"),
        ("identify", RECORDED | {"bounds": {"vb2": [0.1]}}, "bounds.vb2"),
        ("identify", RECORDED | {"multi_start": 3}, "multi_start: is for methods that search"),
        ("identify", RECORDED | {"trim_s": float("nan")}, "trim_s"),
        ("payload", {"recording": "r", "model": ""}, "model"),
        ("compare", {"methods": ["ols", "guess"]}, "methods[1]: unknown method"),
        ("compare", {"seeds": True}, "seeds"),
        ("compare", {"noise": [0.1, 0.0]}, "noise[1]"),
        ("compare", {"outliers": 0.5}, "outliers"),
    ],
)
def test_nonsense_is_refused_by_name(kind: str, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(OperationError, match=f"^{kind}: .*{re.escape(words)}"):
        find_kind(kind).read(parameters)


def test_what_does_not_fit_the_arm_is_refused(arm2: Path, arm2_recording: Path, tmp_path: Path) -> None:
    for parameters, words in (
        ({"robot": None}, "robot: is not given"),
        ({"robot": str(arm2), "min_velocity": [0.1, 0.1, 0.1]}, "one value or 2"),
        ({"robot": str(arm2), "prior": "no_such_robot"}, "no_such_robot"),
        ({"robot": "arm7"}, "2 joints, but robot arm7 has 7"),
    ):
        with pytest.raises(ValueError, match=words):
            run_here("identify", RECORDED | parameters, tmp_path, recording=arm2_recording)
    with pytest.raises(ValueError, match="the noise has 1 values"):
        run_here("compare", {"robot": str(arm2), "noise": [1.0]}, tmp_path)


def test_a_robot_may_come_as_its_whole_description(arm2: Path) -> None:
    given = load_robot(arm2)
    assert open_robot(json.dumps(given.source)).sha256 == given.sha256
    with pytest.raises(OperationError, match="not JSON"):
        open_robot("{")
    with pytest.raises(OperationError, match="'cook'"):
        find_kind("cook")


@pytest.mark.parametrize("limits", [{"seconds": float("inf"), "memory_mb": None}, {"seconds": 0.0}, {"cpu": 1.0}])
def test_limits_of_a_specification(tmp_path: Path, limits: dict[str, Any]) -> None:
    (tmp_path / "spec.json").write_text(json.dumps(spec("compare", {}, limits=limits)), encoding="utf-8")
    with pytest.raises(OperationError, match=r"limits\.(seconds|cpu)"):
        read_spec(tmp_path)


def both(tmp_path: Path, kind: str, parameters: dict[str, Any], **files: Path) -> set[str]:
    """Run a job in a process of its own and then here; the names of its results."""
    alone, _, err = run(tmp_path / "alone", spec(kind, parameters, files), PYTHONHASHSEED="1")
    assert alone["ok"], err
    (tmp_path / "here").mkdir()
    outcome = run_here(kind, parameters, tmp_path / "here" / "results", **files)
    assert alone["metrics"] == json_values(outcome.metrics)
    assert (alone["verdict"], alone["summary"]) == (outcome.verdict, outcome.summary)
    assert results(tmp_path / "alone") == results(tmp_path / "here")
    return set(alone["results"])


@pytest.mark.slow
def test_a_search(tmp_path: Path, stribeck2: Path, stribeck2_recording: Path) -> None:
    parameters = {"recording": "r", "robot": str(stribeck2), "method": "pso", "seed": 4}
    names = both(tmp_path, "identify", parameters, recording=stribeck2_recording)
    assert names == {"model.yaml", "report.html", "metrics.json"}
    for path in (tmp_path / "alone" / "results").iterdir():
        content = path.read_bytes()
        for place in (tmp_path, stribeck2_recording.parent):
            assert str(place).encode() not in content


def test_the_code_version_depends_on_the_sources(tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()
    source = tmp_path / "service" / "a.py"
    source.write_text("x = 1\n")
    before = sources_sha256(tmp_path)
    (tmp_path / "service" / "a.nbi").write_bytes(b"a cache")
    (tmp_path / "elsewhere.py").write_text("y = 1\n")
    assert sources_sha256(tmp_path) == before
    source.write_text("x = 2\n")
    changed = sources_sha256(tmp_path)
    source.rename(tmp_path / "service" / "b.py")
    assert len({before, changed, sources_sha256(tmp_path)}) == 3
    assert set(code_version()) == {"thetad", "sources_sha256", "python", "numpy", "scipy", "numba", "cpu"}
