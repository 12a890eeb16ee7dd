"""A job's folder and its runner, and an arm that is small enough to be quick with."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.jobs.kinds import find_kind
from service.jobs.queue.artifacts import sha256_of
from service.operations.kind import Outcome
from service.operations.workspace import Input, Workspace
from service.protocol.json_values import json_values
from tests.lab.files import FILES

ROOT = Path(__file__).resolve().parents[3]
CREATED = "2026-01-02T03:04:05+00:00"
PATIENCE_S = 240.0  # for a machine that is busy

_JOINT = (FILES / "joint.toml.template").read_text(encoding="utf-8")
_STRIBECK = "breakaway = 5.0\nstribeck_velocity = 0.1"


def small_arm(path: Path, friction: str = "coulomb_viscous") -> Path:
    """Write the description of an arm of two joints."""
    more = _STRIBECK if friction == "stribeck" else ""
    head = f'format = 1\nname = "{path.stem}"\nkinematics = "mdh"\n[model]\nfriction = "{friction}"\n'
    joints = _JOINT.format(name="first", a=0.0, alpha=0, more=more) + _JOINT.format(
        name="second", a=0.3, alpha=90, more=more
    )
    path.write_text(head + joints, encoding="utf-8")
    return path


def spec(
    kind: str, parameters: Mapping[str, Any], files: Mapping[str, Path] | None = None, **more: Any
) -> dict[str, Any]:
    """What `spec.json` holds."""
    inputs = {name: {"path": str(path), "sha256": sha256_of(path)} for name, path in (files or {}).items()}
    whole = {"format": "thetad-job/1", "kind": kind, "parameters": parameters, "created": CREATED, "inputs": inputs}
    return whole | more


def command(folder: Path, parent: int) -> list[str]:
    """Command of a runner; of the lowest priority, it would wait for whatever else the machine is at."""
    start = [sys.executable, "-m", "service.jobs.execution.runner", str(folder)]
    return [*start, "--priority", "normal", "--parent", str(parent)]


def run(folder: Path, content: Mapping[str, Any], **environment: str) -> tuple[dict[str, Any], str, str]:
    """Run a job in a process of its own, in a new folder with that specification: the outcome, stdout, stderr."""
    folder.mkdir()
    (folder / "spec.json").write_text(json.dumps(content), encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command(folder, os.getpid()), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=PATIENCE_S, env=os.environ | {"PYTHONPATH": path} | environment,
    )  # fmt: skip
    outcome = json.loads((folder / "outcome.json").read_text(encoding="utf-8"))
    assert done.returncode == (0 if outcome["ok"] else 1), done.stderr
    return outcome, done.stdout, done.stderr


def results(folder: Path) -> dict[str, str]:
    """Hash of each result that is there."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "results").iterdir()}


def workspace(folder: Path, **files: Path) -> Workspace:
    """Surroundings of a run within this process."""
    folder.mkdir(exist_ok=True)
    inputs = {name: Input(path, sha256_of(path)) for name, path in files.items()}
    return Workspace(folder, CREATED, inputs=inputs)


def run_here(kind: str, parameters: Mapping[str, Any], folder: Path, **files: Path) -> Outcome:
    """Run a job within this process."""
    found = find_kind(kind)
    outcome = found.run(found.read(parameters), workspace(folder, **files))
    written = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert written == json_values(outcome.metrics)
    return outcome
