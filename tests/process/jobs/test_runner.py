"""The runner as a process: what it leaves, what it takes from itself, and how it ends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil

from service.jobs.execution.backend import Ended, read_end
from service.jobs.execution.runner import MIN_MEMORY_MB
from tests.lab.jobs.job_run import PATIENCE_S, command, results, run, spec
from tests.lab.jobs.small_disk import fill, small_disk

QUICK = {"methods": ["ols"], "seeds": 1, "seconds": 4.0}
ENDLESS = {"methods": ["ols"], "seeds": 1000, "seconds": 4.0}


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


def test_a_full_disk_is_not_the_fault_of_the_job(tmp_path: Path, arm2: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        (disk / "spec.json").write_text(json.dumps(spec("compare", QUICK | {"robot": str(arm2)})))
        fill(disk)
        with (disk / "log").open("w") as log:
            done = subprocess.run(command(disk, os.getpid()), stderr=log, timeout=PATIENCE_S)
        assert read_end(disk, done.returncode) == Ended("put_off", "there was no room on the disk")


def test_a_run_whose_parent_is_gone_already_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(json.dumps(spec("compare", {})))
    done = subprocess.run(command(tmp_path, 1), capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["spec.json"]


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
        runner = psutil.Process(int(parent.stdout.readline()))
        while "seed 1" not in log.read_text():
            assert runner.is_running()
        parent.kill()
    runner.wait(PATIENCE_S)
    assert not (folder / "outcome.json").exists()
