"""Kinds of jobs: parts give the whole, a cancelled job stops, nonsense is refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import thetad
from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import load_robot
from service.jobs.execution.code_version import code_version, sources_sha256
from service.jobs.execution.spec import read_spec
from service.jobs.kinds import find_kind
from service.models.document import load_model
from service.operations.errors import OperationCancelledError, OperationError
from service.operations.inputs import open_robot
from service.operations.kind import FanOut
from tests.lab.command_line import rewrite
from tests.lab.jobs.job_run import CREATED, run_here, spec, workspace


def test_a_model_that_explains_nothing_is_not_written(arm2: Path, arm2_recording: Path, tmp_path: Path) -> None:
    good = read_recording(arm2_recording)
    backwards = rewrite(good, tmp_path / "bad.mcap", load_robot(arm2).model, tau=good.channels["tau"][::-1])
    job = run_here("identify", {"recording": "r", "robot": str(arm2)}, tmp_path / "job", recording=backwards)
    assert (job.verdict, job.accepted) == ("not_explained", False)
    assert {path.name for path in (tmp_path / "job").iterdir()} == {"report.html", "metrics.json"}
    assert all(row["value"] is None for row in job.metrics["parameters"])


def test_a_cancelled_identify_stops_in_its_search(stribeck2: Path, stribeck2_recording: Path, tmp_path: Path) -> None:
    kind, heard = find_kind("identify"), list[str]()
    ws = workspace(tmp_path / "run", recording=stribeck2_recording)
    ws.report = lambda _, what: heard.append(what)
    ws.cancelled = lambda: sum(what.startswith("search") for what in heard) >= 2
    with pytest.raises(OperationCancelledError):
        kind.run(kind.read({"recording": "r", "robot": str(stribeck2), "method": "pso"}), ws)
    assert not list((tmp_path / "run").iterdir())


def test_a_comparison_is_that_of_its_parts(arm2: Path, tmp_path: Path) -> None:
    names = ["ols", "iwls", "iv", "physical"]
    parameters = {"robot": str(arm2), "methods": names, "seeds": 2, "seconds": 3.0, "outliers": 0.01}
    whole = run_here("compare", parameters, tmp_path / "whole")
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
    costs = [row["cost"] for row in job.metrics["multi_start"] if row["seed"] in (4, 5)]
    assert costs[0] != costs[1]
    assert load_model(tmp_path / "job" / "model.yaml").document["estimator"]["cost"] == min(costs)
    called = thetad.identify(stribeck2_recording, stribeck2, method="pso", seed=4, multi_start=2)
    assert called.summary | {"created": CREATED} == job.metrics


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
        ("identify", RECORDED | {"cutof_hz": 3.0}, "cutof_hz: is not a parameter; parameters of identify: recording"),
        ("identify", RECORDED | {"cutoff_hz": -1.0}, "cutoff_hz"),
        ("identify", RECORDED | {"min_velocity": [0.1, -1.0]}, "min_velocity[1]"),
        ("identify", RECORDED | {"bounds": {"vb2": [0.1]}}, "bounds.vb2"),
        ("identify", RECORDED | {"multi_start": 3}, "multi_start: is for methods that search"),
        ("identify", RECORDED | {"joints": "auto", "method": "ols"}, "method: not with joints auto"),
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
