"""Blocks of frames, cut anywhere, give what one frame after the other gives, to the bit."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from rt_core.model.parameters import standard_parameters
from service.estimator.process import EstimatorProcess
from service.protocol.messages import BodyMessage, Envelope, encode, encode_frame
from service.worker.frame_subscriber import FrameSubscriber
from service.worker.worker import Runtime, Worker
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.daemon.daemons import config, replayed

RATE, SECONDS = 250.0, 30.0
CHANNELS = {
    "space6_temperature": ("q", "dq", "tau", "temperature", "valid"),
    "space6": ("q_motor", "q", "tau", "valid"),
}
CUTS = {1: [1], 7: [7], 2: [1, 2, 3, 5, 8], 3: [1, 40, 256]}  # sizes to draw from, by seed


def source(arm: str, kind: str, body: dict[str, Any], epoch: int) -> list[bytes]:
    return encode(BodyMessage(arm, kind, Envelope("acquisition", epoch, 0, 0, "sim", 0), body))


def messages(robot: str) -> Iterator[list[bytes]]:
    """Motion and rest, with everything in it that can happen to frames; the source restarts once."""
    model = load_robot(robot).model
    rng = np.random.default_rng(len(robot))
    arm = SimulatedArm(model, SimSettings(rate_hz=RATE), MotionSettings(candidates=1), seed=1)
    found = arm.simulate(SECONDS)
    values = {name: found.channels[name].copy() for name in ("q", "dq", "tau") if name in found.channels}
    count, n = values["q"].shape
    values["temperature"] = 25.0 + np.cumsum(rng.normal(scale=0.005, size=(count, n)), axis=0)
    values["valid"] = rng.random((count, n)) > 0.0005
    values["q"][1200:1500] = values["q"][1200]  # at rest, and off again
    values["tau"][1200:1500] += np.linspace(0.0, 5.0, 300)[:, None]
    values["q"][3000:3900, 0] = values["q"][3000, 0]  # an encoder sticks
    values["q"][6000:6010] = np.nan
    values["tau"][rng.integers(0, count, 5), 0] = np.nan
    values["tau"][4500:6400] += 30.0  # the arm has changed
    values["q_motor"] = values["q"]
    t_ns = np.round(1e9 * np.arange(count) / RATE + rng.normal(scale=2e5, size=count)).astype(np.int64)
    epoch, seq = 1, 0
    for k in range(count):
        seq += 1 if rng.random() > 0.002 else int(rng.integers(2, 60))
        if k == 5000:
            epoch, seq = 2, 0
        if k in (2000, 2200):
            outcome = {"outcome": "guiding" if k == 2000 else "ended"}
            yield source(robot, "status", {"state": "running", "safety": {"guiding": outcome}}, epoch)
        names = list(CHANNELS[robot])
        if 4000 <= k < 4003:
            names.remove("tau")
        if "temperature" in names and (k % 50 or 6500 <= k < 7200):
            names.remove("temperature")
        frame = JointFrame(seq, int(t_ns[k]), 5 * k, **{name: values[name][k] for name in names})
        yield encode_frame(f"{robot}/frame".encode(), "acquisition", epoch, "sim", frame)


def results(folder: Path, robot: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], dict[str, Any]]:
    """What the process publishes and reports, and the state that it would save."""
    model = load_robot(robot).model
    arm = replayed(folder / "none.mcap", robot, robot, estimator={"update_hz": 50.0}, window_s=20.0)
    folder.mkdir()
    Runtime(folder).config.write_text(config(folder, arm).model_dump_json(), encoding="utf-8")
    channels = [name for name in CHANNELS[robot] if name != "valid"]
    names = [joint.name for joint in model.joints]
    meta = {"joint_names": names, "joint_units": ["rad"] * model.n, "channels": channels, "rate_hz": RATE, "source": ""}
    monkeypatch.setattr(
        FrameSubscriber, "wait_for_meta", lambda own, _: own._receive(source(robot, "meta", meta, 1)) or own.meta
    )
    monkeypatch.setattr("service.worker.worker.configure", lambda level: None)  # of all tests of this process
    worker = Worker("estimator", robot, folder, epoch=1)
    told: list[Any] = []
    monkeypatch.setattr(worker, "event", lambda *about, **data: told.append((about, data)))
    process = EstimatorProcess(worker)
    monkeypatch.setattr(process, "_send", lambda message: told.append(encode(message)))
    base = process.estimator.base
    theta = base.theta(standard_parameters(model, base.standard))
    covariance = np.diag((0.05 * np.abs(theta) + 1e-3) ** 2)
    process.active.activate({
        "theta": theta.tolist(), "covariance": covariance.tolist(), "model": "one",
        "temperatures": [[0.0] * model.n, [50.0] * model.n],
    })  # fmt: skip
    try:
        feed(process.frame_subscriber, messages(robot), CUTS[seed], np.random.default_rng(seed))
        return told, process.saved_state._content() | {"status": str(process._status())}
    finally:
        process.close()
        worker.context.destroy(linger=0)


def feed(
    subscriber: FrameSubscriber, received: Iterable[list[bytes]], sizes: list[int], rng: np.random.Generator
) -> None:
    """Pass messages on, in turns of so many."""
    left = 0
    for parts in received:
        subscriber._receive(parts)
        left = (left or int(rng.choice(sizes))) - 1
        if not left:
            subscriber._pass_on()
    subscriber._pass_on()


@pytest.mark.parametrize("robot", CHANNELS)
def test_any_cuts_give_the_same(robot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, state = results(tmp_path / "1", robot, 1, monkeypatch)
    kinds = {message[0].rpartition(b"/")[2] for message in expected if isinstance(message, list)}
    assert kinds == {b"estimate", b"torque", b"event"}
    assert {about[0] for about, _ in (event for event in expected if isinstance(event, tuple))} >= {
        "starved",
        "doubted",
    }
    for seed in (7, 2, 3):
        told, found = results(tmp_path / str(seed), robot, seed, monkeypatch)
        for k, (one, other) in enumerate(zip(expected, told, strict=False)):
            assert one == other, k
        assert len(told) == len(expected)
        assert found.keys() == state.keys()
        for key, value in state.items():
            np.testing.assert_array_equal(found[key], value, key, strict=True)
