"""The harmonic-drive joint as the second of two in a recording, and its robot file."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.elastic_tracking import dropping
from drivers.files.recordings.recording import Recording, RecordingMeta, write_recording
from tests.lab.arms.harmonic_drive import RATE, N, Recorded, measured, one_after_the_other, record
from tests.lab.command_line import thetad
from tests.lab.daemon.daemons import replayed
from tests.lab.files import FILES

KM = 0.4
DRIVE = {"gear_ratio": N, "torque_constant": KM}
ROBOT = (FILES / "elastic_rig.toml").read_text(encoding="utf-8")


def recording_of(r: Recorded) -> Recording:
    """Two joints, of which the second is elastic."""
    still = np.zeros(r.t.size)
    channels = {
        "q": np.column_stack((still, r.theta_out)), "q_motor": np.column_stack((still, r.theta_in)),
        "current": np.column_stack((still, r.motor_torque / KM)), "tau": np.column_stack((still, r.sensor_torque)),
    }  # fmt: skip
    t_ns = np.rint(r.t * 1e9).astype(np.int64)
    meta = RecordingMeta("rig", ("slide", "elbow"), ("m", "rad"), RATE)
    return Recording(r.t, t_ns, np.arange(r.t.size), channels, meta)


def identified_rig(folder: Path) -> Path:
    """Fill a folder with the joint's file, identified from one recording, and another in which its stiffness drops."""
    (folder / "rig.toml").write_text(ROBOT)
    clean = record(None)
    write_recording(folder / "known.mcap", recording_of(measured(one_after_the_other(clean, clean), 1)))
    write_recording(folder / "drops.mcap", recording_of(dropping(2, 1.0)[0]))
    thetad(
        "identify", folder / "known.mcap", "--model", "elastic_joint", "--joint", "elbow", "--robot",
        folder / "rig.toml", "--sensor", "-o", folder / "elastic.json",
    ).ok()  # fmt: skip
    return folder


def rig_arm(rig: Path, recording: str = "drops.mcap", **spring: Any) -> dict[str, Any]:
    """Table of an arm that replays a recording of such a folder."""
    elastic = {"joint": "elbow", "model": str(rig / "elastic.json")} | spring
    return replayed(
        rig / recording, name="rig", robot=str(rig / "rig.toml"), speed="max", elastic=[elastic], state={"every_s": 0.1}
    )
