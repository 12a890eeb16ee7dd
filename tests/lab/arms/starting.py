"""The simulated space arm in motion, then each of its first joints started from rest by itself, several times."""

from functools import cache

import numpy as np

from drivers.files.recordings.recording import Recording, RecordingMeta
from drivers.files.robots.file import RobotFile, robot_from_source
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import DriveSettings, EventSettings, MotionSettings, PieceSettings, SimSettings
from tests.unit.service.cli.test_environment import described

RATE = 500.0
LEARN_S, STROKE_S, REST_S = 16.0, 5.0, 1.0
JOINTS, STARTS = 2, 4
#: Joint and factor of the change of breakaway friction, and after how many of its starts.
CHANGED, FACTOR = 1, 1.5


def robot(environment: str) -> RobotFile:
    return robot_from_source(described(environment=environment))


@cache
def started(environment: str, *, changes: bool = False) -> Recording:
    """Record it; where it `changes`, breakaway friction of a joint rises between two rounds of starts."""
    file = robot(environment)
    names = [joint.name for joint in file.model.joints]
    rounds = 2 if changes else 1
    moving = [names[CHANGED]] if changes else names[:JOINTS]
    rest = PieceSettings(kind="hold", duration_s=REST_S)
    pieces = [PieceSettings(duration_s=LEARN_S), rest]
    for _ in range(rounds * STARTS):
        for name in moving:
            held = tuple(other for other in names if other != name)
            pieces += [
                PieceSettings(kind="paul", duration_s=STROKE_S, speed=0.004, amplitude=0.0015, ramp_s=0.8, held=held),
                rest,
            ]
    motion = MotionSettings(kind="schedule", segments=tuple(pieces), seed=3, candidates=2)
    seconds = sum(piece.duration_s or 0.0 for piece in pieces)
    half_s = LEARN_S + REST_S + STARTS * len(moving) * (STROKE_S + REST_S) - 0.5 * REST_S
    event = EventSettings(time_s=half_s, joint=names[CHANGED], parameter="breakaway", factor=FACTOR)
    settings = SimSettings(
        seed=4, rate_hz=RATE, encoder_bits=24, drive=DriveSettings(feedforward="gravity"),
        events=(event,) if changes else (),
    )  # fmt: skip
    data = SimulatedArm(file.model, settings, motion).simulate(seconds)
    channels = {name: data.channels[name] for name in ("q", "dq", "tau")}
    meta = RecordingMeta(file.model.name, tuple(names), ("rad",) * len(names), RATE)
    return Recording(data.t, np.rint(data.t * 1e9).astype(np.int64), np.arange(data.t.size), channels, meta)
