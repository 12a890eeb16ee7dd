"""Adjust the relative bases of arms from their bases in the frames of one instrument.

The base of arm `i` in the instrument's frame at station `s` is `B_is = T_s W_i`, with `T_s` the base of the first arm
in that frame, and `W_i` the base of arm `i` in that of the first.  Each calibration gives the `B_is` of one arm with
their joint covariance `C_i`, since errors of the arm are common to all of them.  The placements minimise
`Q = sum_i r_i' C_i^-1 r_i`, by Gauss-Newton: to first order the same as one fit of all poses.

Two arms seen from the same two stations close a loop, because both determine the relative stations.  If the instrument
was not moved, `Q` is chi-squared with six degrees of freedom for each independent loop.

Errors of a placement are a translation along the axes of the reference frame, and a rotation vector about its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy
import scipy.linalg as la
from scipy.spatial.transform import Rotation

from rt_core.types import FloatArray

#: Significance level of a disagreement of stations.
SIGNIFICANCE = 0.01
#: Rounding of a placement [m] and [rad].
_ROUNDING = 1e-9
#: Degrees of freedom that count as infinite.
_MANY = 1e9
_STEPS = 50
_STILL = 1e-6  # of a standard deviation


@dataclass(frozen=True, eq=False)
class Placement:
    """Placement of a frame in another: rotation (3, 3) and translation (3,) [m]."""

    rotation: FloatArray = field(default_factory=lambda: np.eye(3))
    translation: FloatArray = field(default_factory=lambda: np.zeros(3))

    def __matmul__(self, other: Placement) -> Placement:
        """Return the composition: `other`, given in this frame, in the reference frame."""
        return Placement(self.rotation @ other.rotation, self.rotation @ other.translation + self.translation)

    def inverse(self) -> Placement:
        return Placement(self.rotation.T, -self.rotation.T @ self.translation)

    def moved(self, error: FloatArray) -> Placement:
        """Return the placement with an error (6,)."""
        turn = Rotation.from_rotvec(error[3:]).as_matrix()
        return Placement(self.rotation @ turn, self.translation + error[:3])

    def error_of(self, other: Placement) -> FloatArray:
        """Return the error (6,) that changes this to `other`."""
        turn = Rotation.from_matrix(self.rotation.T @ other.rotation).as_rotvec()
        return np.concatenate((other.translation - self.translation, turn))


@dataclass(frozen=True, eq=False)
class Sighting:
    """Bases of one arm in the instrument's frame at the numbered stations from which it was measured.

    `covariance` (6 S, 6 S) is of the errors of all of them [m] and [rad], with `freedom` degrees of freedom.
    """

    stations: tuple[int, ...]
    bases: tuple[Placement, ...]
    covariance: FloatArray
    freedom: float = np.inf

    def without(self, station: int) -> Sighting:
        keep = [k for k, number in enumerate(self.stations) if number != station]
        rows = np.concatenate([np.arange(6 * k, 6 * k + 6) for k in keep]) if keep else np.arange(0)
        return Sighting(
            tuple(self.stations[k] for k in keep), tuple(self.bases[k] for k in keep),
            self.covariance[np.ix_(rows, rows)], self.freedom,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Network:
    """Adjusted placements: base of each arm in that of the first, of the first in the instrument's at each station.

    `covariance` (6 A, 6 A) is of the errors of `arms`, zero for the first; `square` is `Q`, and `limit` its limit at
    1 % for `loops` independent loops, infinite without one.
    """

    arms: tuple[Placement, ...]
    stations: dict[int, Placement]
    covariance: FloatArray
    loops: int
    square: float
    limit: float

    @property
    def agrees(self) -> bool:
        """Whether the arms agree about the stations within chance."""
        return self.square <= self.limit

    def between(self, one: int, other: int) -> tuple[Placement, FloatArray]:
        """Return the base of arm `other` in that of arm `one`, and the covariance (6, 6) of its error."""
        W, V = self.arms[one], self.arms[other]
        found = W.inverse() @ V
        J = np.zeros((6, 6 * len(self.arms)))
        J[:3, 6 * other : 6 * other + 3] = W.rotation.T
        J[3:, 6 * other + 3 : 6 * other + 6] = np.eye(3)
        J[:3, 6 * one : 6 * one + 3] -= W.rotation.T
        J[:3, 6 * one + 3 : 6 * one + 6] += _cross(found.translation)
        J[3:, 6 * one + 3 : 6 * one + 6] -= found.rotation.T
        return found, J @ self.covariance @ J.T


@dataclass(frozen=True)
class Suspect:
    """Sighting of an arm (index) at a station (number) without which the rest of a network agrees.

    `distance` [m] and `angle` [rad] are between the arm's base there and that of the rest.
    """

    arm: int
    station: int
    distance: float
    angle: float


def groups(stations: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the groups of arms (indices) that are connected by the stations of each arm."""
    left, found = list(range(len(stations))), []
    while left:
        group, seen = [left.pop(0)], set[int]()
        for arm in group:  # grows
            seen |= set(stations[arm])
            near = [other for other in left if seen & set(stations[other])]
            group += near
            left = [other for other in left if other not in near]
        found.append(sorted(group))
    return found


def adjusted(sightings: Sequence[Sighting]) -> Network:
    """Adjust the placements of all arms and stations; `ValueError` if stations do not connect all arms."""
    if len(groups([s.stations for s in sightings])) != 1:
        raise ValueError("there are arms that share no station with the others, directly or through third ones")
    arms, stations = _roughly(sightings)
    order = {number: k for k, number in enumerate(stations)}
    count, size = len(sightings), 6 * (len(sightings) - 1 + len(stations))
    whiten = [_whitening(s.covariance) for s in sightings]
    covariance = np.zeros((size, size))
    square = 0.0
    for _ in range(_STEPS):
        rows, misses = [], []
        for i, sighting in enumerate(sightings):
            J, r = np.zeros((6 * len(sighting.stations), size)), np.zeros(6 * len(sighting.stations))
            for k, (number, base) in enumerate(zip(sighting.stations, sighting.bases, strict=True)):
                T, W = stations[number], arms[i]
                own = slice(6 * k, 6 * k + 6)
                r[own] = (T @ W).error_of(base)
                at = 6 * (count - 1 + order[number])
                J[own.start : own.start + 3, at : at + 3] = np.eye(3)
                J[own.start : own.start + 3, at + 3 : at + 6] = -T.rotation @ _cross(W.translation)
                J[own.start + 3 : own.stop, at + 3 : at + 6] = W.rotation.T
                if i:
                    J[own.start : own.start + 3, 6 * i - 6 : 6 * i - 3] = T.rotation
                    J[own.start + 3 : own.stop, 6 * i - 3 : 6 * i] = np.eye(3)
            rows.append(whiten[i] @ J)
            misses.append(whiten[i] @ r)
        A, b = np.vstack(rows), np.concatenate(misses)
        lengths = np.linalg.norm(A, axis=0)
        Q, R = la.qr(A / lengths, mode="economic", check_finite=False)
        inverse = la.solve_triangular(R, np.eye(size), check_finite=False) / lengths[:, None]
        step = inverse @ (Q.T @ b)
        covariance, square = inverse @ inverse.T, float(b @ b)
        if np.all(np.abs(step) <= _STILL * np.sqrt(np.diag(covariance))):
            break
        arms = [arms[0], *(W.moved(step[6 * i : 6 * i + 6]) for i, W in enumerate(arms[1:]))]
        for number, k in order.items():
            at = 6 * (count - 1 + k)
            stations[number] = stations[number].moved(step[at : at + 6])
    of_arms = np.zeros((6 * count, 6 * count))
    of_arms[6:, 6:] = covariance[: 6 * count - 6, : 6 * count - 6]
    loops = sum(len(s.stations) for s in sightings) - (count - 1 + len(stations))
    freedom = min(_MANY, *(s.freedom for s in sightings))
    limit = 6 * loops * float(scipy.stats.f.isf(SIGNIFICANCE, 6 * loops, freedom)) if loops else np.inf
    return Network(tuple(arms), stations, of_arms, loops, square, limit)


def suspects(sightings: Sequence[Sighting]) -> tuple[Suspect, ...]:
    """Return the sightings without which, one at a time, a network agrees."""
    found = []
    for i, sighting in enumerate(sightings):
        for number, base in zip(sighting.stations, sighting.bases, strict=True):
            rest = [*sightings[:i], sighting.without(number), *sightings[i + 1 :]]
            if not any(number in other.stations for other in rest) or len(groups([s.stations for s in rest])) != 1:
                continue  # not part of a loop
            network = adjusted(rest)
            if network.agrees:
                away = (network.stations[number] @ network.arms[i]).error_of(base)
                found.append(Suspect(i, number, float(la.norm(away[:3])), float(la.norm(away[3:]))))
    return tuple(found)


def with_error_of_turns(sighting: Sighting, turns: Sequence[FloatArray]) -> Sighting:
    """Return the sighting with its covariance converted from angles `(rx, ry, rz)`, `R = R_0 Rx Ry Rz`, per station.

    `turns` are these angles (3,) [rad]; the error of the rotation vector about the base's own axes is linear in theirs.
    """
    map_ = np.eye(6 * len(turns))
    for k, angles in enumerate(turns):
        y, z = (Rotation.from_euler("XYZ"[axis], angles[axis]).as_matrix() for axis in (1, 2))
        columns = ((y @ z).T @ np.eye(3)[0], z.T @ np.eye(3)[1], np.eye(3)[2])
        map_[6 * k + 3 : 6 * k + 6, 6 * k + 3 : 6 * k + 6] = np.column_stack(columns)
    return replace(sighting, covariance=map_ @ sighting.covariance @ map_.T)


def _roughly(sightings: Sequence[Sighting]) -> tuple[list[Placement], dict[int, Placement]]:
    """Return the placements of arms and stations along a tree from the first arm."""
    arms: dict[int, Placement] = {0: Placement()}
    stations: dict[int, Placement] = {}
    while len(arms) < len(sightings) or any(n not in stations for s in sightings for n in s.stations):
        for i, sighting in enumerate(sightings):
            for number, base in zip(sighting.stations, sighting.bases, strict=True):
                if i in arms and number not in stations:
                    stations[number] = base @ arms[i].inverse()
                elif i not in arms and number in stations:
                    arms[i] = stations[number].inverse() @ base
    return [arms[i] for i in range(len(sightings))], stations


def _whitening(covariance: FloatArray) -> FloatArray:
    """Return `W` (k, k) with `W'W` the inverse of a covariance plus rounding."""
    values, V = la.eigh(covariance + _ROUNDING**2 * np.eye(len(covariance)))
    return np.asarray((V / np.sqrt(np.maximum(values, _ROUNDING**2))).T)


def _cross(v: FloatArray) -> FloatArray:
    """Return the matrix (3, 3) of `v x`."""
    return np.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])
