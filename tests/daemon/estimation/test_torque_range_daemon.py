"""Clipped torques: the estimator leaves them out."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from drivers.files.recordings.recording import RecordingMeta, RecordingWriter, read_recording
from drivers.frame import JointFrame
from tests.lab.daemon.daemons import drained, replayed
from tests.lab.daemon.shared import Site, site

TRUTH = (2.0, 1.0, 0.5, 3.0)  # viscous and Coulomb friction, offset, inertia
FRAMES, RATE_HZ = 12_000, 1000.0
MAX = 40.0  # N; peaks of the true force are at twice that


def clipped_recording(path: Path) -> int:
    """Write a motion whose force is cut off at `MAX`; returns the number of frames in which it is."""
    t = np.arange(FRAMES) / RATE_HZ
    a, b = 2.0 * np.pi * 0.7, 2.0 * np.pi * 1.1
    q = 0.5 * np.sin(a * t) + 0.4 * np.sin(b * t)
    dq = 0.5 * a * np.cos(a * t) + 0.4 * b * np.cos(b * t)
    ddq = -0.5 * a**2 * np.sin(a * t) - 0.4 * b**2 * np.sin(b * t)
    viscous, coulomb, offset, inertia = TRUTH
    tau = inertia * ddq + viscous * dq + coulomb * np.sign(dq) + offset
    tau += 0.05 * np.random.default_rng(1).standard_normal(FRAMES)
    with RecordingWriter(path, RecordingMeta("arm", ("carriage",), ("m",), RATE_HZ)) as writer:
        for k, (position, force) in enumerate(zip(q, np.clip(tau, -MAX, MAX), strict=True)):
            writer.write(JointFrame(k, round(k * 1e9 / RATE_HZ), 0, q=np.array([position]), tau=np.array([force])))
    return int(np.count_nonzero(np.abs(tau) >= MAX))


@pytest.fixture(scope="module")
def clipped(folder: Path) -> Iterator[tuple[Site, int]]:
    """One recording with its range and without; and how many of its frames are clipped."""
    count, recording = clipped_recording(folder / "rec.mcap"), folder / "rec.mcap"
    arms = (
        replayed(recording, "told", speed="max", torque_range=[MAX], recorder={"directory": "kept"}),
        replayed(recording, "blind", speed="max"),
    )
    with site(folder, *arms) as found:
        yield found, count


def test_nothing_is_learned_from_a_clipped_torque(clipped: tuple[Site, int]) -> None:
    """Without its range the same frames make an inertia that is wrong by more than a tenth."""
    running, count = clipped
    assert FRAMES // 20 < count < FRAMES // 2
    with running.control() as control:
        drained(control, "told/estimator", "blind/estimator", "told/recorder")
        told, blind = (control.request("snapshot", arm=arm) for arm in ("told", "blind"))
        events = [event for event in control.request("events")["events"] if event["kind"] == "torque_clipped"]
    assert (told["masked"], blind["masked"]) == (count, 0)
    np.testing.assert_allclose(told["theta"], TRUTH, atol=0.05)
    assert abs(blind["theta"][3] - TRUTH[3]) > 0.1 * TRUTH[3]
    (event,) = events  # once, not for each frame
    assert event["arm"] == "told"
    assert abs(event["data"]["torque"]) == event["data"]["limit"] == MAX
    assert event["data"] | {"joint": "carriage", "frames": 1} == event["data"]
    (path,) = (running.path / "kept").glob("*.mcap")
    assert np.count_nonzero(~read_recording(path).valid) == count  # a batch job leaves them out too
