"""Real recordings replayed at their own pace through a daemon."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from drivers.files.recordings.recording import Span, read_recording
from drivers.files.robots.file import load_robot
from rt_core.model.base import base_parameters
from service.cli.main import main
from service.client import Control, FrameMessage, Subscriber
from service.models.origin import Dataset
from service.operations.identify import identify_recording, signal_settings, validate_recording
from tests.lab.daemon.daemons import await_message, config, drained, log_lines, replayed, start

ROOT = Path(__file__).resolve().parents[3]


def test_no_frame_is_lost_and_the_online_model_predicts_what_it_has_not_seen(data_dir: Path, tmp_path: Path) -> None:
    name, fit, held_back, path = "franka_panda", "0:0.6", "0.6:1", tmp_path / "rec.mcap"
    mapping = ROOT / "configs" / "mappings" / f"{name}.toml"
    source = data_dir / name / "panda_exciting.npz"
    assert main(["import", str(source), "--mapping", str(mapping), "-o", str(path)]) == 0
    recording = read_recording(path)
    arm = replayed(path, "arm", name, span=fit, hold=True, recorder={"directory": "recordings"})
    with start(config(tmp_path, arm), tmp_path) as daemon, Control(daemon.endpoints["control"]) as control:
        endpoints = daemon.endpoints
        with (
            subprocess.Popen(
                [sys.executable, str(ROOT / "examples" / "subscribe_plain.py"), endpoints["estimates"], "arm"],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            ) as example,
            Subscriber(endpoints["frames"], ["arm/frame", "arm/status"]) as frames,
        ):
            await_message(frames)
            control.request("start")
            await_message(frames, lambda m: not isinstance(m, FrameMessage) and m.body.get("state") == "ended")
            found = drained(control, "arm/estimator", "arm/recorder")
            snapshot = control.request("snapshot")
            assert "theta [" in example.stdout.readline()
            example.terminate()
    played = recording.span(Span.parse(fit))
    assert found["arm/estimator"]["info"]["received"] == played.samples
    assert found["arm/estimator"]["info"]["lost"] == 0
    assert frames.counts["arm/frame", "acquisition"].received == played.samples
    assert frames.lost == 0
    (recorded,) = (tmp_path / "recordings").glob("*.mcap")
    np.testing.assert_array_equal(read_recording(recorded).channels["tau"], played.channels["tau"])
    assert "frames_lost" not in log_lines(tmp_path)

    robot = load_robot(name)
    base = base_parameters(robot.model)
    data, rest = (Dataset(recording, robot, signal_settings(robot), Span.parse(part)) for part in (fit, held_back))
    batch = identify_recording(data, base=base)

    def error(theta: np.ndarray) -> float:
        return validate_recording(rest, base, theta).metrics.relative_error

    assert error(np.array(snapshot["theta"])) <= 1.15 * error(batch.theta)
