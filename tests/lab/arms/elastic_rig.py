"""The harmonic-drive joint as the second of two in a recording, and its robot file."""

from __future__ import annotations

import numpy as np

from drivers.files.recordings.recording import Recording, RecordingMeta
from tests.lab.arms.harmonic_drive import RATE, N, Recorded

KM = 0.4
DRIVE = {"gear_ratio": N, "torque_constant": KM}
ROBOT = """
format = 1
name = "rig"
kinematics = "dh"
[transmission]
gear_ratio = [1.0, 290.0]
torque_constant = [1.0, 0.4]
[[joint]]
name = "slide"
kind = "prismatic"
[[joint]]
name = "elbow"
armature = 4.205
"""


def recording_of(r: Recorded) -> Recording:
    """Two joints, of which the second is elastic."""
    still = np.zeros(r.t.size)
    channels = {
        "q": np.column_stack((still, r.theta_out)),
        "q_motor": np.column_stack((still, r.theta_in)),
        "current": np.column_stack((still, r.motor_torque / KM)),
        "tau": np.column_stack((still, r.sensor_torque)),
    }
    t_ns = np.rint(r.t * 1e9).astype(np.int64)
    meta = RecordingMeta("rig", ("slide", "elbow"), ("m", "rad"), RATE)
    return Recording(r.t, t_ns, np.arange(r.t.size), channels, meta)
