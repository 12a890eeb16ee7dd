"""The command line as a user meets it, and small recordings of simulated arms to give it."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.recordings.recording import Recording, RecordingMeta, RecordingWriter
from drivers.files.robots.file import load_robot
from drivers.frame import CHANNELS, JointFrame
from rt_core.model.robot import RobotModel
from service.cli.main import main
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings

ROOT = Path(__file__).resolve().parents[2]
RATE_HZ = 500.0


@dataclass(frozen=True)
class Outcome:
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        assert self.out.endswith("}\n"), self
        assert self.out.count("\n") == 1, self
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    def ok(self) -> "Outcome":
        """Assert that the command succeeded."""
        assert self.code == 0, self
        return self

    def refused(self, *words: str, code: int = 2) -> str:
        """Assert that bad input was refused in one line with all `words`; returns that line."""
        assert self.code == code, self
        assert self.out == "", self
        assert "Traceback" not in self.err, self
        lines = [line for line in self.err.splitlines() if line.startswith("thetad")]
        assert len(lines) == 1, self.err
        for word in words:
            assert word in lines[0], f"{word!r} is not in: {lines[0]}"
        return lines[0]


def thetad(*arguments: object) -> Outcome:
    """Run a command within this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 1
    return Outcome(code, out.getvalue(), err.getvalue())


def thetad_process(*arguments: object, cwd: Path = ROOT, timeout_s: float = 240.0) -> Outcome:
    """Run a command in a process of its own."""
    command = [sys.executable, "-m", "service.cli.main", *(str(argument) for argument in arguments)]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=timeout_s
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def meta_of(model: RobotModel, rate_hz: float) -> RecordingMeta:
    """Description of a recording of `model`."""
    units = tuple("rad" if joint.kind == "revolute" else "m" for joint in model.joints)
    return RecordingMeta(model.name, tuple(joint.name for joint in model.joints), units, rate_hz)


def write_recording(
    path: Path, model: RobotModel, t: np.ndarray, channels: Mapping[str, np.ndarray], rate_hz: float = RATE_HZ,
) -> Path:  # fmt: skip
    """Write channels (N, n) as a recording of `model`."""
    assert set(channels) <= set(CHANNELS)
    with RecordingWriter(path, meta_of(model, rate_hz)) as writer:
        for k, time_s in enumerate(t):
            frame = JointFrame(k, round(time_s * 1e9), 0)
            for name, values in channels.items():
                setattr(frame, name, values[k])
            writer.write(frame)
    return path


def simulate(
    path: Path, robot: str | Path | RobotModel, seed: int = 1, seconds: float = 20.0, rate_hz: float = RATE_HZ
) -> Path:
    """Write a recording of a simulated arm in exciting motion."""
    model = robot if isinstance(robot, RobotModel) else load_robot(robot).model
    settings = SimSettings(seed=seed, rate_hz=rate_hz, channels=("q", "dq", "tau"))
    arm = SimulatedArm(model, settings, MotionSettings(seed=seed, candidates=2))
    data = arm.simulate(seconds)
    return write_recording(path, model, data.t, data.channels, rate_hz)


def rewrite(recording: Recording, path: Path, model: RobotModel, **changes: np.ndarray) -> Path:
    """Write a recording again with other channels."""
    channels = {**recording.channels, **changes}
    return write_recording(path, model, recording.t, channels, recording.rate_hz)


def mounted(robot: str, gravity: str, folder: Path) -> Path:
    """Copy a shipped robot file with another direction of gravity, beside its URDF if it has one."""
    configs = ROOT / "configs" / "robots"
    text = (configs / f"{robot}.toml").read_text(encoding="utf-8")
    assert text.count('gravity = "floor"') == 1
    for urdf in configs.glob(f"{robot}.urdf"):
        (folder / urdf.name).write_bytes(urdf.read_bytes())
    out = folder / f"{robot}_{gravity.replace('+', 'plus_').replace('-', 'minus_')}.toml"
    out.write_text(text.replace('gravity = "floor"', f'gravity = "{gravity}"'), encoding="utf-8")
    return out
