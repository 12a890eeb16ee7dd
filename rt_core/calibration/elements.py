"""Build the elements and parameters of a chain from a DH table or from placements."""

import math
from collections.abc import Sequence

import numpy as np

from rt_core.calibration._chain import RX, RY, RZ, TURN, TX, TY, TZ
from rt_core.calibration.geometry import Geometry
from rt_core.model.dh import DhRow
from rt_core.types import FloatArray

#: Angle within which consecutive axes count as parallel [rad].
PARALLEL = math.radians(10.0)
_FRAME_NAMES = ("x", "y", "z", "rx", "ry", "rz")
#: Priority of dependent parameters: frames are kept first, then joint zeros, the rest, offsets along axes, and the
#: constant of a distance sensor, which distances that are all alike do not tell from the size of the arm.
FRAME, ZERO, SHAPE, ALONG, SENSOR = range(5)


class Builder:
    """Collect elements and parameters in the order of the chain."""

    def __init__(self) -> None:
        self.elements: list[tuple[int, int, int, float, FloatArray]] = []
        self.parameters: list[tuple[str, str, float, int, bool, int]] = []

    def add(self, code: int, place: int, nominal: float, name: str | None = None, priority: int = SHAPE) -> None:
        """Add an element to a placement; with a name it is a parameter."""
        column = -1
        if name is not None:
            column = len(self.parameters)
            rotary = code >= RX
            self.parameters.append((name, "rad" if rotary else "m", nominal, priority, rotary, place))
        self.elements.append((code, place, column, nominal, np.eye(3)))

    def turn(self, place: int, rotation: FloatArray) -> None:
        """Add a fixed rotation (3, 3)."""
        self.elements.append((TURN, place, -1, 0.0, rotation))

    def frame(
        self, which: str, place: int, rotation: FloatArray, translation: FloatArray, free: Sequence[bool]
    ) -> None:
        """Add seven elements: three translations, a fixed rotation, three rotations."""
        labels = [f"{which}_{label}" if on else None for label, on in zip(_FRAME_NAMES, free, strict=True)]
        for code, label, value in zip((TX, TY, TZ), labels[:3], translation, strict=True):
            self.add(code, place, float(value), label, FRAME)
        self.turn(place, rotation)
        for code, label in zip((RX, RY, RZ), labels[3:], strict=True):
            self.add(code, place, 0.0, label, FRAME)


def _parallel(alpha: float) -> bool:
    return abs(math.sin(alpha)) <= math.sin(PARALLEL)


def _z_to(axis: FloatArray) -> FloatArray:
    """Return the smallest rotation (3, 3) that maps z to a unit vector."""
    x, y, z = axis
    if z < -1.0 + 1e-12:
        return np.diag([1.0, -1.0, -1.0])
    f = 1.0 / (1.0 + z)
    return np.array([[1.0 - f * x * x, -f * x * y, x], [-f * x * y, 1.0 - f * y * y, y], [-x, -y, z]])


def add_rows(build: Builder, geometry: Geometry) -> dict[str, str]:
    """Add the elements of a DH table; return the offsets that a `beta` replaces."""
    rows = geometry.rows
    n = len(rows)
    modified = geometry.convention == "mdh"
    # alpha between axes i and i + 1 is in row i of a standard table, in row i + 1 of a modified one
    tilt = [False] * n
    replaced: dict[str, str] = {}
    for i in range(n - 1):
        holder = i + 1 if modified else i
        if _parallel(rows[holder].alpha):
            tilt[holder] = True
            if rows[i].kind == "revolute":
                replaced[f"d{i + 1}"] = f"beta{holder + 1}"
    for i, row in enumerate(rows):
        k = str(i + 1)
        place = i if modified else i + 1
        prismatic = row.kind == "prismatic"
        d_name = None if f"d{k}" in replaced else f"d{k}"

        def twist(row: DhRow = row, place: int = place, k: str = k, tilted: bool = tilt[i]) -> None:
            order = (
                ((RX, row.alpha, "alpha"), (TX, row.a, "a"))
                if modified
                else ((TX, row.a, "a"), (RX, row.alpha, "alpha"))
            )
            for code, value, name in order:
                build.add(code, place, value, name + k)
            if tilted:
                build.add(RY, place, 0.0, f"beta{k}")

        if modified:
            twist()
        build.add(RZ, place, row.theta, f"theta{k}", SHAPE if prismatic else ZERO)
        build.add(TZ, place, row.d, d_name, ZERO if prismatic else ALONG)
        if not modified:
            twist()
    return replaced


def add_joints(build: Builder, geometry: Geometry) -> FloatArray:
    """Add the elements of placements; return the rotations (n, 3, 3) from z to each axis."""
    align = np.empty((len(geometry.joints), 3, 3))
    before = np.eye(3)
    for i, joint in enumerate(geometry.joints):
        align[i] = _z_to(joint.axis)
        build.turn(i, before.T)
        for code, value in zip((TX, TY, TZ), joint.translation, strict=True):
            build.add(code, i, float(value))
        build.turn(i, joint.rotation @ align[i])
        along, about = (ALONG, ZERO) if joint.kind == "revolute" else (ZERO, SHAPE)
        for code, label, priority in (
            (TX, "x", SHAPE),
            (TY, "y", SHAPE),
            (TZ, "z", along),
            (RX, "rx", SHAPE),
            (RY, "ry", SHAPE),
            (RZ, "rz", about),
        ):
            build.add(code, i, 0.0, f"{label}{i + 1}", priority)
        before = align[i]
    build.turn(len(geometry.joints), before.T)
    return align
