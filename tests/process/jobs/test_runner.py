"""The runner as a process: what it leaves, what it takes from itself, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.jobs.execution.runner import MB, MIN_MEMORY_MB
from service.jobs.execution.spec import read_spec
from service.operations.errors import OperationError
from tests.lab.jobs.job_run import CREATED, PATIENCE_S, command, finish, results, run, spec, start

QUICK = {"methods": ["ols"], "seeds": 1, "seconds": 4.0}
ENDLESS = {"methods": ["ols"], "seeds": 1000, "seconds": 4.0}
MEMORY_MB = 700


def told(process: subprocess.Popen[str], word: str) -> dict[str, Any]:
    """Wait for a line of progress that says `word`."""
    assert process.stdout is not None
    for line in process.stdout:
        said: dict[str, Any] = json.loads(line)
        if word in said["what"]:
            return said
    raise AssertionError(f"ended before it said {word}")


def test_a_good_run_leaves_results_and_lists_them(tmp_path: Path, arm2: Path) -> None:
    folder = tmp_path / "job"
    outcome, out, err = run(folder, spec("compare", QUICK | {"robot": str(arm2)}, limits={"memory_mb": MIN_MEMORY_MB}))
    assert err == ""
    assert (outcome["ok"], outcome["accepted"], outcome["verdict"]) == (True, True, "ok")
    assert {name: entry["sha256"] for name, entry in outcome["results"].items()} == results(folder)
    assert set(outcome["results"]) == {"report.html", "metrics.json"}
    assert json.loads((folder / "results" / "metrics.json").read_text()) == outcome["metrics"]
    assert outcome["code"]["python"] == ".".join(map(str, sys.version_info[:3]))
    shares = [json.loads(line)["share"] for line in out.splitlines()]
    assert [0.0, *shares, 1.0] == sorted([0.0, *shares, 1.0])
    assert not [path for path in folder.rglob(".*")]


@pytest.mark.soak
def test_the_run_takes_little_memory_and_stops(tmp_path: Path, arm2: Path) -> None:
    folder = tmp_path / "job"
    given = spec("compare", ENDLESS | {"robot": str(arm2)}, limits={"memory_mb": MEMORY_MB})
    process = start(folder, given, priority="idle")
    told(process, "seed 1")
    proc = Path("/proc", str(process.pid))
    limits = {line[:25].strip(): line[25:].split()[0] for line in (proc / "limits").read_text().splitlines()}
    assert int(limits["Max data size"]) == MEMORY_MB * MB
    assert int(limits["Max core file size"]) == 0
    assert os.sched_getscheduler(process.pid) == os.SCHED_IDLE
    assert len(list((proc / "task").iterdir())) == 1  # no threads of libraries
    assert (proc / "fd" / "0").readlink() == Path(os.devnull)
    process.send_signal(signal.SIGTERM)
    outcome, _, err = finish(process, folder)
    assert outcome.pop("code")["python"]
    assert outcome == {"ok": False, "reason": "cancelled", "final": True, "cancelled": True}
    assert err == ""
    assert results(folder) == {}


def test_errors_are_final_or_may_be_retried(tmp_path: Path, arm2: Path, arm2_recording: Path) -> None:
    wrong = spec("identify", {"recording": "r", "robot": str(arm2)}, {"recording": arm2_recording})
    wrong["inputs"]["recording"]["sha256"] = "0" * 64
    outcome, _, _ = run(tmp_path / "own", wrong)
    assert (outcome["final"], outcome["cancelled"]) == (True, False)
    assert f"recording: {arm2_recording}: has changed since" in outcome["reason"]

    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "spec.json").write_text(json.dumps(spec("compare", QUICK | {"robot": str(arm2)})))
    (blocked / "results").write_text("not a folder")
    done = subprocess.run(command(blocked, os.getpid()), capture_output=True, text=True, timeout=PATIENCE_S)
    outcome = json.loads((blocked / "outcome.json").read_text())
    assert done.returncode == 1
    assert (outcome["ok"], outcome["final"], outcome["cancelled"]) == (False, False, False)
    assert outcome["reason"].startswith("FileExistsError")
    assert "Traceback" in done.stderr


def test_the_run_dies_with_its_parent(tmp_path: Path, arm2: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "spec.json").write_text(json.dumps(spec("compare", ENDLESS | {"robot": str(arm2)})))
    # stdout is a file, so that only the parent's death can end the run
    program = (
        "import os, subprocess, sys\n"
        f"process = subprocess.Popen([*{command(folder, 0)[:-1]!r}, str(os.getpid())], stdout=open(sys.argv[1], 'w'))\n"
        "print(process.pid, flush=True)\n"
        "process.wait()\n"
    )
    log = tmp_path / "stdout"
    with subprocess.Popen([sys.executable, "-c", program, str(log)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        runner = psutil.Process(int(parent.stdout.readline()))
        while "seed 1" not in log.read_text():
            assert runner.is_running()
        parent.kill()
    runner.wait(PATIENCE_S)
    assert not (folder / "outcome.json").exists()


def test_a_run_without_a_reader_ends(tmp_path: Path, arm2: Path) -> None:
    process = start(tmp_path / "job", spec("compare", ENDLESS | {"robot": str(arm2)}), priority="low")
    told(process, "seed 1")
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 1
    assert process.stderr.read() == ""
    process.stderr.close()
    assert not (tmp_path / "job" / "outcome.json").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "thetad-job/2"}, "format: Input should be 'thetad-job/1'"),
        ({"more": 1}, "more: Extra inputs"),
        ({"inputs": {"recording": {"path": "x", "sha256": "abc"}}}, "inputs.recording.sha256"),
        ({"limits": {"memory_mb": -1.0}}, "limits.memory_mb"),
        ({"part": {}, "parts": []}, "part and parts"),
    ],
)
def test_a_wrong_specification_names_the_field(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    whole = {"format": "thetad-job/1", "kind": "compare", "parameters": {}, "created": CREATED}
    (tmp_path / "spec.json").write_text(json.dumps(whole))
    assert read_spec(tmp_path).kind == "compare"
    (tmp_path / "spec.json").write_text(json.dumps(whole | changes))
    with pytest.raises(OperationError) as caught:
        read_spec(tmp_path)
    assert str(tmp_path / "spec.json") in str(caught.value)
    assert words in str(caught.value)
