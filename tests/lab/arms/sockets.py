"""Postures that hold a ball in a socket, found by SciPy on Craig's closed form of a row's matrix."""

from collections.abc import Mapping

import numpy as np
from scipy.optimize import least_squares

from rt_core.calibration.geometry import Geometry
from rt_core.types import FloatArray


def ball(geometry: Geometry, errors: Mapping[str, float], tool: FloatArray, posture: FloatArray) -> FloatArray:
    """Place (3,) of a point of the last frame of an arm of modified DH rows, with errors of those by name."""
    p = np.append(tool, 1.0)
    for k in range(len(geometry.rows), 0, -1):
        row = geometry.rows[k - 1]
        a, alpha, d = (getattr(row, name) + errors.get(f"{name}{k}", 0.0) for name in ("a", "alpha", "d"))
        theta = posture[k - 1] + errors.get(f"theta{k}", 0.0)
        c, s, ca, sa = np.cos(theta), np.sin(theta), np.cos(alpha), np.sin(alpha)
        T = [[c, -s, 0.0, a], [s * ca, c * ca, -sa, -d * sa], [s * sa, c * sa, ca, d * ca], [0.0, 0.0, 0.0, 1.0]]
        p = np.array(T) @ p
    return p[:3]


def in_sockets(
    geometry: Geometry, errors: Mapping[str, float], tool: FloatArray, sockets: FloatArray, count: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Postures (G count, n) with the point `tool` (3,) in each of `sockets` (G, 3), and the sockets' numbers."""
    q, numbers = [], []
    for g, socket in enumerate(sockets):
        found = 0
        while found < count:

            def miss(posture: FloatArray, socket: FloatArray = socket) -> FloatArray:
                return ball(geometry, errors, tool, posture) - socket

            end = least_squares(miss, rng.uniform(-1.5, 1.5, geometry.n), xtol=1e-15, ftol=1e-15, gtol=1e-15)
            if np.linalg.norm(end.fun) < 1e-12 and np.abs(end.x).max() < 3.0:
                q.append(end.x)
                numbers.append(g)
                found += 1
    return np.array(q), np.array(numbers)
