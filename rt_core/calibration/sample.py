"""Postures and measurements of a calibration, as arrays for the kernels.

An instrument gives positions or poses in its own frame.  Without one there are distances from an unknown fixed point (a
ball bar, a draw wire), or a ball at the tool that sits in one of several sockets: then only the coincidence of the
point at several postures is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rt_core.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Spacing:
    """Known distance [m] between two sockets (from 0), and its standard deviation [m]."""

    first: int
    second: int
    distance: float
    std: float = 1e-4


@dataclass(frozen=True, eq=False)
class Contacts:
    """Contacts of a ball at the tool with sockets, without other measurements."""

    socket: IntArray  # (N,) socket at each posture, from 0
    spacings: Sequence[Spacing] = ()  # without any, the size of the arm is not determined


@dataclass(frozen=True, eq=False)
class Distances:
    """Distance of the tool's point from a fixed one at each posture."""

    length: FloatArray  # (N,) [m]
    centre: IntArray  # (N,) fixed point, from 0


@dataclass(frozen=True, eq=False)
class Sample:
    """Postures and measurements."""

    q: FloatArray  # (N, n) [rad] or [m]
    cosine: FloatArray  # (N, n)
    sine: FloatArray
    measured: FloatArray  # (N, 12) rotation, row-major, and position
    width: int  # residuals of a pose: 3, 6 with orientation, 1 of a distance
    point: IntArray | None = None  # (N,) the unknown fixed point of each pose, from 0
    length: FloatArray | None = None  # (N,) distance from it [m]; None: the ball is at it
    head: IntArray | None = None  # (N,) the point on the tool that was measured, from 0
    load: FloatArray | None = None  # (N, n) load of each joint [N*m or N], for compliance
    station: IntArray | None = None  # (N,) station of the instrument, from 0

    @classmethod
    def of(cls, q: FloatArray, positions: FloatArray, rotations: FloatArray | None = None) -> "Sample":
        """Return the sample of `q` (N, n), positions (N, 3) [m] and, if measured, rotations (N, 3, 3)."""
        q = np.ascontiguousarray(q, dtype=np.float64)
        packed = np.tile(np.append(np.eye(3), np.zeros(3)), (q.shape[0], 1))
        packed[:, 9:] = positions
        if rotations is not None:
            packed[:, :9] = rotations.reshape(-1, 9)
        return cls(q, np.cos(q), np.sin(q), packed, 3 if rotations is None else 6)

    @classmethod
    def at_points(cls, q: FloatArray, point: IntArray, length: FloatArray | None = None) -> "Sample":
        """Return the sample of `q` (N, n) at fixed points `point` (N,), or at distances `length` (N,) [m] from them."""
        plain = cls.of(q, np.zeros((len(q), 3)))
        number = np.ascontiguousarray(point, dtype=np.int64)
        length = None if length is None else np.ascontiguousarray(length, dtype=np.float64)
        return cls(plain.q, plain.cosine, plain.sine, plain.measured, 3 if length is None else 1, number, length)

    def __len__(self) -> int:
        return int(self.q.shape[0])

    @property
    def positions(self) -> FloatArray:
        """(N, 3) [m]."""
        return self.measured[:, 9:]

    @property
    def rotations(self) -> FloatArray:
        """(N, 3, 3), identities if orientation was not measured."""
        return self.measured[:, :9].reshape(-1, 3, 3)

    @property
    def points(self) -> int:
        """Number of unknown fixed points."""
        return 0 if self.point is None else int(self.point.max()) + 1

    def take(self, rows: BoolArray) -> "Sample":
        """Return the poses of these rows (N,) only."""
        point = None if self.point is None else self.point[rows]
        length = None if self.length is None else self.length[rows]
        load = None if self.load is None else self.load[rows]
        parts = (self.q[rows], self.cosine[rows], self.sine[rows], self.measured[rows])
        head = None if self.head is None else self.head[rows]
        station = None if self.station is None else self.station[rows]
        return Sample(*parts, self.width, point, length, head, load, station)
