"""The same job gives the same bytes again: in another folder, at another time, with another order of hashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from service.jobs.execution.code_version import code_version, sources_sha256
from service.protocol.json_values import json_values
from tests.lab.jobs.job_run import results, run, run_here, spec


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
