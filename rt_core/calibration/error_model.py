"""Error model of an arm: parameters of its geometric errors, and the measured pose as a function of them.

The model is exact, not linear in the errors: each parameter is added to its nominal value in the product.

- Standard DH, row `i`: `Rz(q + theta) Tz(d) Tx(a) Rx(alpha) [Ry(beta)]`.
- Modified DH, row `i`: `Rx(alpha) Tx(a) [Ry(beta)] Rz(theta + q) Tz(d)`.
- Placements: `Tx Ty Tz Rx Ry Rz` in the joint's frame before it moves, with z along its axis.
- Base: `Tx Ty Tz` along the measuring frame's axes, the start of the rotation, then `Rx Ry Rz`.
- Tool: `Tx Ty Tz` in the last frame, then the nominal rotation and, where orientation is measured, `Rx Ry Rz`.
- Compliance: joint `i` is at `q - compliance_i load_i`, with `load` its torque or force against gravity.
- Stations: further positions of the instrument; the base in its frame there is `base2_x`, ..., as the first.
- Heads: further measured points on the tool are `head2_x`, ... along the last frame's axes from the first.
- Distances: the sensor says `distance_offset` [m] more than the distance.
- Unknown fixed points (`rt_core.calibration.sample`): `point1_x` to `point1_z` in the measuring frame.

Between consecutive axes within `PARALLEL` of parallel, the offset `d` along the first is ill-conditioned: a small tilt
moves the common normal by metres.  Hayati's `beta`, a rotation about y, replaces it (Hayati and Mirmirani 1985).  A
prismatic joint keeps its `d`, which is its zero position.

Names end in the number of the joint whose row in the robot's table has the value: `a2`, `theta3`, `beta2`, `rz1`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rt_core.calibration._chain import Elements, Postures, assemble, jacobian, poses, residuals
from rt_core.calibration.elements import ALONG, FRAME, SENSOR, ZERO, Builder, add_joints, add_rows
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.sample import Sample, Spacing
from rt_core.model.robot import Joint
from rt_core.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class ErrorModel:
    """Parameters of a chain, and the chain itself as elements (see `rt_core.calibration._chain`)."""

    geometry: Geometry
    names: tuple[str, ...]  # of the `P` parameters
    units: tuple[str, ...]  # "m", "rad", "rad/(N*m)" or "m/N"
    nominal: FloatArray  # (P,) values without errors
    priority: IntArray  # (P,) `FRAME`, `ZERO`, `SHAPE`, `ALONG` or `SENSOR`
    rotary: BoolArray  # (P,)
    parameter_place: IntArray  # (P,) placement of each parameter
    replaced: dict[str, str]  # name of an offset along parallel axes to the name of the `beta` that replaces it
    code: IntArray
    place: IntArray
    column: IntArray
    value: FloatArray
    turn: FloatArray
    revolute: BoolArray
    align: FloatArray  # (n, 3, 3) rotation of z to the joint's axis
    compliance: bool = False  # n parameters after those of the chain
    heads: int = 1  # measured points on the tool; offsets of all but the first are parameters
    points: int = 0  # unknown fixed points, whose coordinates are the last parameters
    offset: bool = False  # `distance_offset` is a parameter, before these
    spacings: tuple[Spacing, ...] = ()
    station_frames: tuple[tuple[FloatArray, FloatArray], ...] = ()  # nominal base at further stations

    @property
    def stations(self) -> int:
        """Number of stations of the instrument."""
        return 1 + len(self.station_frames)

    @property
    def base_names(self) -> tuple[str, ...]:
        """Names of the base in the instrument's frame at each station: "base", "base2", ..."""
        return ("base", *(f"base{s}" for s in range(2, self.stations + 1)))

    @property
    def size(self) -> int:
        """Number of parameters."""
        return len(self.names)

    @property
    def of_arm(self) -> BoolArray:
        """Whether each parameter (P,) is of the arm, not of a frame, a fixed point or the sensor."""
        return np.asarray((self.priority != FRAME) & (self.priority != SENSOR))

    def index(self, name: str) -> int:
        """Return the index of a parameter; raise `ValueError` if there is none of that name."""
        if name not in self.names:
            raise ValueError(f"there is no parameter {name!r}; known: {', '.join(self.names)}")
        return self.names.index(name)

    def belongs_to(self, frame: str) -> IntArray:
        """Return the indices of the parameters of the "base", the "tool", or the base at a further station."""
        return np.array([k for k, name in enumerate(self.names) if name.startswith(f"{frame}_")], dtype=np.int64)

    def assembled(self, x: FloatArray, station: int = 0) -> tuple[FloatArray, FloatArray]:
        """Return placements (n + 1, 12) and the parameters' screws (P, 6) at the errors `x` (P,), from a station.

        The screws of the base are those of the base at that station.
        """
        placements = np.empty((self.revolute.size + 1, 12))
        screws = np.zeros((self.size, 6))
        value, turn, x = self._at_station(station, x)
        assemble(Elements(self.code, self.place, self.column, value, turn), x, placements, screws)
        return placements, screws

    def _at_station(self, station: int, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return nominal values, rotations and errors of the chain with the base of a station."""
        if station == 0:
            return self.value, self.turn, np.ascontiguousarray(x, dtype=np.float64)
        value, turn, x = self.value.copy(), self.turn.copy(), np.array(x, dtype=np.float64)
        elements = self._elements("base")
        rotation, translation = self.station_frames[station - 1]
        value[elements[:3]] = translation
        turn[elements[3]] = rotation.ravel()
        x[self.belongs_to("base")] = x[self.belongs_to(self.base_names[station])]
        return value, turn, x

    def predict(
        self, q: FloatArray, x: FloatArray, load: FloatArray | None = None, head: IntArray | None = None,
        station: IntArray | None = None,
    ) -> tuple[FloatArray, FloatArray]:  # fmt: skip
        """Return positions (N, 3) [m] and rotations (N, 3, 3) of the measured frame at postures `q` (N, n).

        `load` (N, n) [N*m or N] is that of the joints; None for no compliance.  `head` (N,) is the point on the tool
        and `station` (N,) that of the instrument, from 0; None for the first.
        """
        q = np.ascontiguousarray(q, dtype=np.float64)
        if self.compliance and load is not None:
            q = q - load * self.compliances(x)
        out = np.empty((q.shape[0], 12))
        for rows, placements, _ in self._groups(head, station, x):
            part = np.empty((len(q[rows]), 12))
            poses(placements, self.revolute, q[rows], np.cos(q[rows]), np.sin(q[rows]), part)
            out[rows] = part
        return out[:, 9:].copy(), out[:, :9].reshape(-1, 3, 3).copy()

    def residual(self, sample: Sample, x: FloatArray) -> FloatArray:
        """Return model minus measurement in the measuring frame: positions [m], rotations [rad]; or distances [m].

        (N, 3), (N, 6) or (N, 1), by `sample.width`.
        """
        out = self._from_points(sample, x)
        if sample.length is None:
            return out
        shown = np.linalg.norm(out, axis=1) + self.sensor_offset(x)
        return np.asarray((shown - sample.length)[:, None])

    def jacobian(self, sample: Sample, x: FloatArray, free: IntArray | None = None) -> FloatArray:
        """Return the derivative (N, k, p) of the residual with respect to the parameters `free` (p,), default all."""
        free = np.arange(self.size) if free is None else np.ascontiguousarray(free, dtype=np.int64)
        given, sample = sample, self._deflected(sample, x)
        # the compliance of a joint moves the frame as its zero does
        gives = (free >= self.first_compliance) & (free < self.first_station)
        of_station = (free >= self.first_station) & (free < self.first_head)
        of_head = (free >= self.first_head) & (free < self.first_offset)
        chain = free.copy()
        chain[gives] = np.flatnonzero(self.priority == ZERO)[free[gives] - self.first_compliance]
        # the offset of a head moves it as the tool's does
        if of_head.any():
            chain[of_head] = self.belongs_to("tool")[(free[of_head] - self.first_head) % 3]
        # a base moves the frame as the first one does, in its own station's frame
        if of_station.any():
            chain[of_station] = self.belongs_to("base")[(free[of_station] - self.first_station) % 6]
        of_chain = free < self.first_offset
        chain = chain[of_chain]
        out = np.empty((len(sample), chain.size, max(sample.width, 3)))
        for rows, placements, screws in self._groups(sample.head, sample.station, x):
            where = self.postures(sample, rows)
            part = np.empty((len(where.q), *out.shape[1:]))
            jacobian(placements, screws[chain], self.parameter_place[chain], self.rotary[chain], where, part)
            out[rows] = part
        for column in np.flatnonzero(of_head[of_chain]):
            out[sample.head != 1 + (free[of_chain][column] - self.first_head) // 3, column] = 0.0
        if self.stations > 1:
            station = np.zeros(len(sample), dtype=np.int64) if sample.station is None else sample.station
            for column in np.flatnonzero(np.isin(chain, self.belongs_to("base"))):
                out[station != max(1 + (free[of_chain][column] - self.first_station) // 6, 0), column] = 0.0
        if sample.load is not None and gives.any():
            out[:, gives[of_chain]] *= -sample.load[:, free[gives] - self.first_compliance, None]
        if sample.point is None:
            return out.transpose(0, 2, 1)
        J = np.zeros((len(sample), 3, free.size))
        J[:, :, of_chain] = out.transpose(0, 2, 1)
        for column in np.flatnonzero(free >= self.first_point):
            point, axis = divmod(int(free[column]) - self.first_point, 3)
            J[sample.point == point, axis, column] = -1.0
        if sample.length is None:
            return J
        away = self._from_points(given, x)
        along = np.einsum("ni,nip->np", away / np.linalg.norm(away, axis=1, keepdims=True), J)
        along[:, ~of_chain & (free < self.first_point)] = 1.0
        return np.asarray(along[:, None, :])

    @property
    def first_point(self) -> int:
        """Index of the first coordinate of a fixed point; `size` if there is none."""
        return self.size - 3 * self.points

    @property
    def first_offset(self) -> int:
        """Index of the constant of the distance sensor; `first_point` if there is none."""
        return self.first_point - int(self.offset)

    def sensor_offset(self, x: FloatArray) -> float:
        """Return the constant of the distance sensor [m] at the errors `x` (P,)."""
        return float((self.nominal + x)[self.first_offset : self.first_point].sum())

    @property
    def first_compliance(self) -> int:
        """Index of the first joint's compliance; `first_station` if there is none."""
        return self.first_station - (self.revolute.size if self.compliance else 0)

    @property
    def first_station(self) -> int:
        """Index of the first parameter of the base at the second station; `first_head` if there is none."""
        return self.first_head - 6 * (self.stations - 1)

    @property
    def first_head(self) -> int:
        """Index of the first coordinate of the second head's offset; `first_offset` if there is none."""
        return self.first_offset - 3 * (self.heads - 1)

    def compliances(self, x: FloatArray) -> FloatArray:
        """Return the compliances (n,) [rad/(N*m)] or [m/N]."""
        return np.asarray(x[self.first_compliance : self.first_station])

    def offsets(self, x: FloatArray) -> FloatArray:
        """Return the offset (H, 3) [m] of each head from the first, along the axes of the last frame."""
        return np.vstack((np.zeros((1, 3)), (self.nominal + x)[self.first_head : self.first_offset].reshape(-1, 3)))

    def _groups(
        self, head: IntArray | None, station: IntArray | None, x: FloatArray
    ) -> Iterator[tuple[BoolArray | slice, FloatArray, FloatArray]]:
        """Yield the rows of each head at each station, with placements (n + 1, 12) and screws (P, 6)."""
        for s in range(1 if station is None else self.stations):
            placements, screws = self.assembled(x, s)
            here = None if station is None else station == s
            if head is None or self.heads == 1:
                yield slice(None) if here is None else here, placements, screws
                continue
            axes = screws[self.belongs_to("tool")[:3], :3]
            for h, offset in enumerate(self.offsets(x)):
                own = placements.copy()
                own[-1, 9:] += offset @ axes
                yield head == h if here is None else (head == h) & here, own, screws

    def postures(self, sample: Sample, rows: BoolArray | slice = slice(None)) -> Postures:
        """Return some rows of a sample for the kernels."""
        return Postures(self.revolute, sample.q[rows], sample.cosine[rows], sample.sine[rows], sample.measured[rows])

    def _deflected(self, sample: Sample, x: FloatArray) -> Sample:
        if not self.compliance or sample.load is None:
            return sample
        q = np.ascontiguousarray(sample.q - sample.load * self.compliances(x))
        return replace(sample, q=q, cosine=np.cos(q), sine=np.sin(q))

    def places(self, x: FloatArray) -> FloatArray:
        """Return the fixed points (G, 3) [m] at the errors `x` (P,)."""
        return np.asarray((self.nominal + x)[self.first_point :].reshape(-1, 3))

    def with_places(self, places: FloatArray) -> "ErrorModel":
        """Return the model with these nominal fixed points (G, 3) [m]."""
        nominal = self.nominal.copy()
        nominal[self.first_point :] = places.ravel()
        return replace(self, nominal=nominal)

    def with_found_points(self, x: FloatArray) -> "ErrorModel":
        """Return the model with nominal heads, sensor and fixed points as at the errors `x` (P,)."""
        nominal = self.nominal.copy()
        nominal[self.first_head :] += x[self.first_head :]
        return replace(self, nominal=nominal)

    def spacing_rows(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return residuals (M,) [m] of the known spacings of fixed points, and their derivatives (M, P)."""
        r, J = np.zeros(len(self.spacings)), np.zeros((len(self.spacings), self.size))
        places = self.places(x)
        for k, known in enumerate(self.spacings):
            away = places[known.first] - places[known.second]
            distance = float(np.linalg.norm(away))
            r[k] = distance - known.distance
            for point, sign in ((known.first, 1.0), (known.second, -1.0)):
                column = self.first_point + 3 * point
                J[k, column : column + 3] = sign * away / max(distance, 1e-12)
        return r, J

    def _from_points(self, sample: Sample, x: FloatArray) -> FloatArray:
        """Return the residual (N, 3) or (N, 6) from the measured pose or the fixed point."""
        sample = self._deflected(sample, x)
        if sample.point is not None:
            measured = sample.measured.copy()
            measured[:, 9:] = self.places(x)[sample.point]
            sample = replace(sample, measured=measured)
        out = np.empty((len(sample), max(sample.width, 3)))
        for rows, placements, _ in self._groups(sample.head, sample.station, x):
            where = self.postures(sample, rows)
            part = np.empty((len(where.q), out.shape[1]))
            residuals(placements, where, part)
            out[rows] = part
        return out

    def frame(self, which: str, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return rotation (3, 3) and translation (3,) of "base" in the measuring frame or "tool" in the last one.

        "base2" and so on are the base at further stations.
        """
        station = self.base_names.index(which) if which in self.base_names else 0
        inside = np.isin(np.arange(self.code.size), self._elements("base" if station else which))
        value, turn, x = self._at_station(station, x)
        place = np.zeros(int(inside.sum()), dtype=np.int64)
        packed = np.empty((1, 12))
        screws = np.zeros((self.size, 6))
        elements = Elements(self.code[inside], place, self.column[inside], value[inside], turn[inside])
        assemble(elements, x, packed, screws)
        return packed[0, :9].reshape(3, 3), packed[0, 9:]

    def with_frame(self, which: str, rotation: FloatArray, translation: FloatArray) -> "ErrorModel":
        """Return the model with this nominal base (of a station) or tool."""
        if which in self.base_names[1:]:
            frames = list(self.station_frames)
            frames[self.base_names.index(which) - 1] = (rotation, translation)
            nominal = self.nominal.copy()
            nominal[self.belongs_to(which)[:3]] = translation
            return replace(self, station_frames=tuple(frames), nominal=nominal)
        value, turn, nominal = self.value.copy(), self.turn.copy(), self.nominal.copy()
        elements = self._elements(which)
        value[elements[:3]] = translation
        turn[elements[3]] = rotation.ravel()
        for e in elements[:3]:
            if self.column[e] >= 0:
                nominal[self.column[e]] = value[e]
        return replace(self, value=value, turn=turn, nominal=nominal)

    def joints(self, x: FloatArray) -> tuple[tuple[Joint, ...], tuple[FloatArray, FloatArray]]:
        """Return the joints with the errors `x` (P,), and the measured frame in the last link frame.

        In the form of `rt_core.model.robot`, without the base, in the link frames of the description.
        """
        placements, _ = self.assembled(x)
        R_base, t_base = self.frame("base", x)
        found: list[Joint] = []
        before = np.eye(3)
        rotation, translation = np.eye(3), np.zeros(3)
        for k, packed in enumerate(placements):
            rotation, translation = packed[:9].reshape(3, 3), packed[9:]
            if k == 0:
                rotation, translation = R_base.T @ rotation, R_base.T @ (translation - t_base)
            rotation, translation = before @ rotation, before @ translation
            if k < self.revolute.size:
                before = self.align[k]
                nominal = (self.geometry.rows or self.geometry.joints)[k]
                kind = nominal.kind
                limits = (nominal.lower, nominal.upper, nominal.velocity, nominal.effort)
                found.append(Joint(nominal.name, kind, rotation @ before.T, translation, before[:, 2].copy(), *limits))
        return tuple(found), (rotation, translation)

    def _elements(self, which: str) -> IntArray:
        """Return the indices of the elements of the base (first seven) or the tool (last seven)."""
        if which not in ("base", "tool"):
            raise ValueError(f"there is no frame {which!r}; known: base, tool")
        return np.arange(7) if which == "base" else np.arange(self.code.size - 7, self.code.size)


@dataclass(frozen=True)
class Targets:
    """What the instrument measures beside a single point from a single place."""

    heads: int = 1  # measured points on the tool
    points: int = 0  # unknown fixed points: sockets, or the centres of distances
    spacings: Sequence[Spacing] = ()  # known distances between them
    stations: int = 1  # of the instrument; more than one needs an unknown base
    offset: bool = False  # distances are measured, by a sensor with an unknown constant


def error_model(
    geometry: Geometry, *, base: bool = True, tool: bool = True, orientation: bool = False, compliance: bool = False,
    targets: Targets | None = None,
) -> ErrorModel:  # fmt: skip
    """Return the error model of an arm.

    Parameters
    ----------
    geometry : Geometry
    base, tool : bool
        The robot's base in the measuring frame and the measured frame in the last link are parameters.  If not,
        measurements are in the robot's base frame and of its tip.
    orientation : bool
        Orientation is measured; otherwise the tool has no rotation to estimate.
    compliance : bool
        Each joint has a compliance.
    targets : Targets, optional
    """
    targets = Targets() if targets is None else targets
    heads, points, stations = targets.heads, targets.points, targets.stations
    n = geometry.n
    build = Builder()
    build.frame("base", 0, np.eye(3), np.zeros(3), [base] * 6)
    align = np.tile(np.eye(3), (n, 1, 1))
    replaced: dict[str, str] = {}
    if geometry.convention == "placements":
        align = add_joints(build, geometry)
    else:
        replaced = add_rows(build, geometry)
    build.frame("tool", n, geometry.tip_rotation, geometry.tip_translation, [tool] * 3 + [tool and orientation] * 3)
    code, place, column, value, turn = zip(*build.elements, strict=True)
    if compliance:
        units_of = ["rad/(N*m)" if turns else "m/N" for turns in geometry.revolute]
        build.parameters += [(f"compliance{k}", unit, 0.0, ALONG, False, 0) for k, unit in enumerate(units_of, 1)]
    for s in range(2, stations + 1):
        build.parameters += [(f"base{s}_{axis}", "m", 0.0, FRAME, False, 0) for axis in ("x", "y", "z")]
        build.parameters += [(f"base{s}_{axis}", "rad", 0.0, FRAME, True, 0) for axis in ("rx", "ry", "rz")]
    build.parameters += [(f"head{h}_{axis}", "m", 0.0, FRAME, False, 0) for h in range(2, heads + 1) for axis in "xyz"]
    build.parameters += [("distance_offset", "m", 0.0, SENSOR, False, 0)] * targets.offset
    build.parameters += [(f"point{g + 1}_{axis}", "m", 0.0, FRAME, False, 0) for g in range(points) for axis in "xyz"]
    names, units, nominal, priority, rotary, parameter_place = zip(*build.parameters, strict=True)
    return ErrorModel(
        geometry, names, units, np.array(nominal), np.array(priority, dtype=np.int64),
        np.array(rotary, dtype=np.bool_), np.array(parameter_place, dtype=np.int64), replaced,
        np.array(code, dtype=np.int64), np.array(place, dtype=np.int64), np.array(column, dtype=np.int64),
        np.array(value), np.array(turn).reshape(-1, 9), np.array(geometry.revolute, dtype=np.bool_), align,
        compliance, heads, points, targets.offset, tuple(targets.spacings),
        tuple((np.eye(3), np.zeros(3)) for _ in range(1, stations)),
    )  # fmt: skip
