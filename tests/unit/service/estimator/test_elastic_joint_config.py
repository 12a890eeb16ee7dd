"""Elastic joints of a configuration: what is refused, and an estimate that goes back to what it was."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from drivers.files.robots.file import load_robot
from service.config.load import ConfigError, parse_config
from service.estimator._rigid_estimate import Inputs
from service.estimator.elastic_tracking import ElasticTracking, elastic_tracking
from tests.lab.arms.elastic_rig import identified_rig, rig_arm
from tests.lab.command_line import thetad
from tests.lab.daemon.daemons import config


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return identified_rig(tmp_path_factory.mktemp("rig"))


def test_an_estimate_goes_back_to_what_it_was_and_goes_on(rig: Path, tmp_path: Path) -> None:
    """As where an encoder stuck: the joint's position stays the same for two seconds, and its motor turns."""
    settings = config(tmp_path, rig_arm(rig, "known.mcap", forgetting=0.996)).arm[0]
    recording = read_recording(rig / "known.mcap")
    model = load_robot(str(rig / "rig.toml")).model
    tracking = elastic_tracking(settings, model, tuple(recording.channels), recording.meta.rate_hz, "")
    (tracker,), inputs = tracking.trackers, Inputs(model, has_dq=False)
    frames = list(recording.frames())[: recording.samples // 2]
    stick = round(0.6 * len(frames))
    again = stick + round(2.0 * recording.meta.rate_hz)
    for block in inputs.blocks(frames[:stick]):
        tracker.push(block)
    kept, before = tracker.snapshot(), tracker.estimator.theta
    for block in inputs.blocks([replace(frame, q=frames[stick].q) for frame in frames[stick:again]]):
        tracker.push(block)
    assert not np.allclose(tracker.estimator.theta, before, rtol=0.05)
    tracker.rollback(kept)
    np.testing.assert_array_equal(tracker.estimator.theta, before)
    assert tracking.documents()["elbow"]["row_t"] is None
    for block in inputs.blocks(frames[again:]):
        tracker.push(block)
    assert tracking.documents()["elbow"]["row_t"] > 1e-9 * frames[again].t_bus_ns
    assert not np.array_equal(tracker.estimator.theta, before)


def test_an_estimate_starts_from_the_active_model_and_goes_on_with_it(rig: Path, tmp_path: Path) -> None:
    arm = config(tmp_path, rig_arm(rig, "known.mcap") | {"elastic": [{"joint": "elbow"}]}).arm[0]
    recording, model = read_recording(rig / "known.mcap"), load_robot(str(rig / "rig.toml")).model

    def tracking() -> ElasticTracking:
        return elastic_tracking(arm, model, tuple(recording.channels), recording.meta.rate_hz, "")

    document = json.loads((rig / "elastic.json").read_text())
    springs = [{key: document[key] for key in ("joint", "drive", "online_start")}]
    found = tracking()
    (tracker,), frames = found.trackers, list(recording.frames())[: recording.samples // 2]
    for block in Inputs(model, has_dq=False).blocks(frames[:100]):
        tracker.push(block)
    found.warm_up()
    assert found.documents() == {}
    with pytest.raises(ConfigError, match="joint elbow: the lag is open"):
        found.prepared([springs[0] | {"online_start": {"reason": "the lag is open"}}])
    assert tracker.estimator is None
    found.prepared(springs)()
    start = tracker.estimator.theta
    for block in Inputs(model, has_dq=False).blocks(frames):
        tracker.push(block)
    learned = tracker.estimator.theta
    assert not np.allclose(learned, start, rtol=1e-3)
    found.prepared(springs)()  # the same model again, as after a restart of the jobs' process
    np.testing.assert_array_equal(tracker.estimator.theta, learned)

    later = tracking()
    later.trackers[0].restore(tracker.state())
    later.prepared(springs)()  # the estimator's process has started anew, before it knew the model
    np.testing.assert_array_equal(later.trackers[0].estimator.theta, learned)
    begin = springs[0]["online_start"]
    stiffer = begin | {"values": begin["values"] | {"k1": 2.0 * begin["values"]["k1"]}}
    later.prepared([springs[0] | {"online_start": stiffer}])()
    assert later.trackers[0].estimator.theta[0] == pytest.approx(2.0 * start[0])
    later.prepared([])()  # a roll-back to rigid joints
    assert later.documents() == {}


def rewritten(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    """Change the joint's file."""

    def apply(folder: Path) -> None:
        document = json.loads((folder / "elastic.json").read_text())
        change(document)
        (folder / "elastic.json").write_text(json.dumps(document))

    return apply


@pytest.mark.parametrize(
    ("change", "spring", "words"),
    [
        (None, {"joint": "wrist"}, ("elastic[0].joint", "'rig' has no joint 'wrist'", "slide, elbow")),
        (None, {"joint": "slide"}, ("elastic[0].model", "is of joint elbow, not of slide")),
        (None, {"model": "rig.toml"}, ("elastic[0].model", "rig.toml: is not JSON")),
        (rewritten(lambda d: d.update(format="thetad-model/1")), {}, ("thetad-elastic-joint/1",)),
        (rewritten(lambda d: d.pop("online_start")), {}, ("has no online_start", "an earlier version")),
        (rewritten(lambda d: d.update(online_start={"reason": "stage: why"})), {}, ("elbow: stage: why",)),
        (rewritten(lambda d: d["online_start"].update(lag_s=0.5)), {}, ("elastic.json: lag 0.5 s",)),
        (rewritten(lambda d: d["online_start"]["values"].update(k1=0.0)), {}, ("start of k1: 0",)),
        (rewritten(lambda d: d["online_start"].pop("zero")), {}, ("online_start.zero: is missing",)),
        (rewritten(lambda d: d["drive"].update(gear_ratio=0.0)), {}, ("drive: gear ratio 0",)),
        (rewritten(lambda d: d["drive"].update(torque_constant=None)), {}, ("has no torque constant",)),
        (rewritten(lambda d: d["drive"].update(gear_ratio=160.0)), {}, ("gear ratio 160, but 290 in [transmission]",)),
        (rewritten(lambda d: d["drive"].update(torque_constant=0.5)), {}, ("torque constant 0.5 N*m/A, but 0.4",)),
        (rewritten(lambda d: d["online_start"].update(motor_offset=1.5)), {}, ("motor offset 1.5 rad, but 0 rad",)),
    ],
)
def test_what_cannot_be_estimated_is_one_error(
    rig: Path, tmp_path: Path, change: Callable[[Path], object] | None, spring: dict[str, Any], words: tuple[str, ...]
) -> None:
    for name in ("elastic.json", "rig.toml"):
        (tmp_path / name).write_bytes((rig / name).read_bytes())
    if change is not None:
        change(tmp_path)
    table = {"arm": [{**rig_arm(rig), "elastic": [{"joint": "elbow", "model": "elastic.json"} | spring]}]}
    path = tmp_path / "daemon.json"
    path.write_text(json.dumps(table))
    line = thetad("serve", "-c", path, "--check").refused(*words)
    assert str(path) in line


def test_a_joint_has_one_table(rig: Path, tmp_path: Path) -> None:
    settings = rig_arm(rig)
    settings["elastic"] *= 2
    with pytest.raises(ConfigError, match=r"two tables are of joint elbow"):
        parse_config({"arm": [settings]}, "test", tmp_path)
