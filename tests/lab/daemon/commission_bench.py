"""A simulated arm for commissioning steps without a daemon, with directions and scales of its own."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

from drivers.files.recordings.recording import RecordingMeta, RecordingWriter
from drivers.files.robots.file import RobotFile
from drivers.frame import JointFrame
from rt_core.model.dynamics import inverse_dynamics
from rt_core.types import FloatArray
from service.commission._site import Frames, Move
from service.commission.commissioning import STEP_NAMES
from service.commission.context import Ask, Context
from service.commission.folder import Folder
from service.commission.settings import CommissionSettings, Payload
from service.io.trajectory_file import Trajectory

RATE_HZ = 500.0
COULOMB, NOISE, MASS = 1.0, 0.01, 10.0
FRICTION = 0.08  # of the effort limit, where friction is elastic before it slides
_REST_S = 0.4


class Bench:
    """The arm, whose drives hold and report `here` (n,), and its site, with recordings in `folder`.

    `signs` (n,) are -1 at joints that are inverted in all their signals, `torque_signs` (n,) where the torque alone is;
    `scale` (n,) is the true motion of each joint over what command and position say, and joints that are `held` do not
    move, because of friction.  Friction is elastic before it slides: over the first of `slip` [rad or m], beginning at
    the second, a share of that.  `reached` (n,) is the largest distance of each joint's set position from the start.
    """

    rehearsal = False
    arm, drives = "bench", "abc"

    def __init__(
        self, robot: RobotFile, here: FloatArray, folder: Path, signs: FloatArray | None = None,
        scale: FloatArray | None = None, torque_signs: FloatArray | None = None, held: Collection[int] = (),
        slip: tuple[float, float] | None = None,
    ) -> None:  # fmt: skip
        n, self.slip = robot.model.n, slip
        self.torque_signs, self.held = np.ones(n) if torque_signs is None else torque_signs, list(held)
        self.robot, self.here, self.folder = robot, here.copy(), folder
        self.signs, self.scale = np.ones(n) if signs is None else signs, np.ones(n) if scale is None else scale
        self.reached, self.moves, self.permit_max_s = np.zeros(n), list[str](), 600.0
        self.rate_hz = RATE_HZ  # of its cycle, whatever that of its frames is
        self._rng = np.random.default_rng(3)

    def site(self) -> Any:
        return self

    def mount(self, payload: Payload | None) -> None:
        raise AssertionError(payload)

    def where(self) -> tuple[FloatArray, FloatArray]:
        return self.here.copy(), self.here.copy()

    def rest(self, seconds: float) -> Frames:
        count = round(seconds * RATE_HZ)
        q = np.tile(self.here, (count, 1))
        channels = {"q": q, "tau": self._torque(q) + NOISE * self._rng.normal(size=q.shape)}
        return Frames(np.arange(count) / RATE_HZ, np.arange(count), channels, self.rate_hz)

    def move(
        self, make: Callable[[FloatArray, FloatArray], Trajectory], for_s: float, *, name: str = "", **_: Any
    ) -> Move:
        trajectory = make(*self.where())
        trajectory.cycles(1.0 / self.rate_hz)  # as an arm does
        assert trajectory.period_s <= for_s + 0.1
        self.moves.append(name)
        rows = trajectory.positions(np.arange(0.0, trajectory.period_s, 1.0 / RATE_HZ))
        self.reached = np.maximum(self.reached, np.abs(rows - self.here).max(axis=0))
        rest = round(_REST_S * RATE_HZ)
        setpoint = np.vstack((np.repeat(rows[:1], rest, axis=0), rows, np.repeat(rows[-1:], rest, axis=0)))
        q = setpoint.copy()
        q[:, self.held] = q[0, self.held]
        dq, tau = np.gradient(q, 1.0 / RATE_HZ, axis=0), self._torque(q)
        tau += NOISE * self._rng.normal(size=q.shape)
        path = self.folder / f"{len(self.moves):02d}.mcap"
        joints = self.robot.model.joints
        units = tuple("rad" if joint.kind == "revolute" else "m" for joint in joints)
        meta = RecordingMeta("bench", tuple(joint.name for joint in joints), units, RATE_HZ)
        with RecordingWriter(path, meta) as writer:
            for i in range(len(q)):
                t_ns = round(1e9 * i / RATE_HZ)
                writer.write(JointFrame(i, t_ns, t_ns, q=q[i], dq=dq[i], tau=tau[i], setpoint=setpoint[i]))
        return Move(path, "")

    def _torque(self, q: FloatArray) -> FloatArray:
        """Return the torque of the true motion that is reported as `q`."""
        signs = self.torque_signs * self.signs
        true = self.signs * (q[0] + self.scale * (q - q[0]))
        dq = np.gradient(true, 1.0 / RATE_HZ, axis=0)
        ddq, model = np.gradient(dq, 1.0 / RATE_HZ, axis=0), self.robot.model
        tau = COULOMB * np.sign(np.where(np.abs(dq) > 1e-9, dq, 0.0))
        if self.slip is not None:
            efforts = np.array([joint.effort for joint in model.joints])
            tau = FRICTION * efforts * np.column_stack([slipping(way, *self.slip) for way in true.T])
        if model.inertial is None:
            return np.asarray(signs * (tau + MASS * ddq))
        return np.asarray(
            signs * (tau + inverse_dynamics(model.geometry, model.gravity, model.inertial, true, dq, ddq))
        )


def slipping(q: FloatArray, distance: float, start: float, elements: int = 8) -> FloatArray:
    """Friction over its limit along positions (N,): springs in parallel that slip one after another (Maxwell)."""
    most = np.arange(1, elements + 1) * distance / elements
    stretch = start * most
    found = np.empty_like(q)
    for i, step in enumerate(np.diff(q, prepend=q[0])):
        stretch = np.clip(stretch + step, -most, most)
        found[i] = (stretch / most).mean()
    return found


def context(bench: Bench, ask: Ask | None, drives: str = "abc", again_from: str | None = None) -> Context:
    """Return the context of a step, as the command makes it, with the steps "robot" and "signals" done."""
    folder, settings = Folder(bench.folder / "out", STEP_NAMES), CommissionSettings()
    identity = {
        "robot": {"name": bench.robot.model.name, "sha256": bench.robot.sha256}, "arm": bench.arm, "drives": drives,
        "settings": settings.as_dict(),
    }  # fmt: skip
    folder.begin(identity, again_from)
    for step in ("robot", "signals"):
        if folder.result(step) is None:
            found = {"rate_hz": RATE_HZ, "nominal_hz": bench.rate_hz, "channels": ["q", "tau"]}
            folder.write(step, "done", "", 1.0, found)
    return Context(bench.robot, settings, folder, bench, ask)
