"""Plan poses to measure: on a Fibonacci spiral, reachable, within limits and away from singularities.

KIN samples spherical layers around the base and keeps reachable poses away from singularities.  Here each point is
tried from several random postures with free orientation, so that the wrist varies; a layer with too few reachable
points is sampled more densely.

Layers have equidistant radii `r_k = r_max - k (r_max - r_min) / m` for `k = 0 ... m - 1`, and each has 0.7 times as
many points as the one around it.  On a layer the azimuth advances by the golden ratio and the cosine of the inclination
decreases evenly, for a uniform density.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from rt_core.calibration._chain import walk
from rt_core.calibration._inverse import dexterity, inverse_kinematics, limits_of
from rt_core.calibration.error_model import ErrorModel, error_model
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.identifiability import Identifiability, identifiability, triangle
from rt_core.calibration.sample import Sample
from rt_core.calibration.selection import Observability
from rt_core.settings import AnyShare, Bounded, Count, Finite
from rt_core.types import BoolArray, FloatArray, IntArray

GOLDEN = (1.0 + math.sqrt(5.0)) / 2.0
#: Ratio of the number of points of a layer to that of the one around it.
DECAY = 0.7
#: Ratio of the smallest to the largest radius of KIN (270 and 850 mm).
INNER_SHARE = 270.0 / 850.0
#: Largest radius by default, as a share of the reach: at the full reach every posture is singular.
OUTER_SHARE = 0.8
_REACH_POSTURES = 4000
_DENSER = (1.0, 1.3, 1.7, 2.2, 3.0)
_REACHED = 1e-6

ProgressCallback = Callable[[float, str], None]


class PlanningError(ValueError):
    """Poses cannot be planned; the message says what to change."""


@dataclass(frozen=True)
class PlanSettings(Bounded):
    """Settings of a plan of poses."""

    refusal: ClassVar[type[ValueError]] = PlanningError
    count: Annotated[int, Interval(ge=1, le=100_000)] = 45
    layers: Annotated[int, Interval(ge=1, le=1000)] = 4
    r_max: float | None = None  # largest radius around the base [m]; by default 0.8 of the reach
    r_min: float | None = None  # smallest radius [m], not a layer; by default KIN's share of `r_max`
    decay: AnyShare = DECAY  # ratio of the number of points of a layer to that of the one around it
    # smallest reciprocal condition number of the joint Jacobian, lengths over half the reach
    singularity: AnyShare = 0.02
    margin: Annotated[float, Interval(ge=0.0, le=0.49)] = 0.02  # share of a joint's range kept free at each limit
    floor: Finite | None = None  # minimum height of joints and tool in the base frame [m]
    tries: Annotated[int, Interval(ge=1, le=10_000)] = 30  # random start postures for each point
    seed: Count = 0  # of these
    turn: Finite = 0.0  # rotation of the spiral about z [rad]; another one gives other poses, e.g. for validation


@dataclass(frozen=True, eq=False)
class PosePlan:
    """Planned postures."""

    q: FloatArray  # (N, n) [rad] or [m]
    positions: FloatArray  # (N, 3), of the measured frame in the robot's base, with nominal geometry
    rotations: FloatArray  # (N, 3, 3), likewise
    layer: IntArray  # (N,) from 0 for the outermost
    radii: FloatArray  # (m,) [m]
    wanted: tuple[int, ...]  # wanted points on each layer; the arm may reach fewer
    dexterity: FloatArray  # (N,) reciprocal condition number of the joint Jacobian

    @property
    def found(self) -> tuple[int, ...]:
        """Number of points on each layer."""
        return tuple(int((self.layer == k).sum()) for k in range(len(self.wanted)))

    def take(self, rows: IntArray | BoolArray) -> "PosePlan":
        """Return the plan of these poses only."""
        parts = (self.q[rows], self.positions[rows], self.rotations[rows], self.layer[rows])
        return PosePlan(*parts, self.radii, self.wanted, self.dexterity[rows])


def reach_of(geometry: Geometry) -> float:
    """Return the largest distance of the measured frame from the base [m] over random postures in the limits."""
    model = error_model(geometry, base=False, tool=False)
    lower, upper = limits_of(model)
    q = np.random.default_rng(0).uniform(lower, upper, (_REACH_POSTURES, geometry.n))
    positions, _ = model.predict(q, np.zeros(model.size))
    return float(np.linalg.norm(positions, axis=1).max())


def fibonacci_plan(
    geometry: Geometry, settings: PlanSettings | None = None, on_progress: ProgressCallback | None = None
) -> PosePlan:
    """Plan poses on the spiral.

    Raises `PlanningError` if the settings contradict each other, or the arm reaches none of the points.
    """
    s = PlanSettings() if settings is None else settings
    on_progress = on_progress or (lambda _share, _what: None)
    model = error_model(geometry, base=False, tool=False)
    reach = reach_of(geometry)
    r_max = OUTER_SHARE * reach if s.r_max is None else s.r_max
    try:
        counts = layer_counts(s.count, s.layers, s.decay)
        radii = layer_radii(r_max, INNER_SHARE * r_max if s.r_min is None else s.r_min, s.layers)
    except ValueError as error:
        raise PlanningError(str(error)) from None
    search = _Search(model, s, 0.5 * reach)
    q: list[FloatArray] = []
    layer: list[int] = []
    for k, (count, radius) in enumerate(zip(counts, radii, strict=True)):
        best: list[FloatArray] = []
        for denser in _DENSER:
            on_progress(k / s.layers, f"layer {k + 1} of {s.layers}")
            points = radius * spiral(round(denser * count), s.turn + k)
            reached = [posture for point in points if (posture := search.posture_at(point)) is not None]
            if len(reached) > len(best):
                best = reached
            if len(best) >= count:
                break
        if len(best) > count:  # an even selection
            best = [best[i] for i in np.unique(np.linspace(0, len(best) - 1, count).round().astype(np.int64))]
        q += best
        layer += [k] * len(best)
    if not q:
        raise PlanningError(
            f"the arm reaches none of {s.count} points {radii[-1]:.3g} to {radii[0]:.3g} m from its base, away from "
            "singularities: change the radii, or lower singularity, margin or floor"
        )
    found = np.array(q)
    positions, rotations = model.predict(found, np.zeros(model.size))
    return PosePlan(
        found, positions, rotations, np.array(layer), radii, counts,
        dexterity(model, search.nothing, found, 0.5 * reach),
    )  # fmt: skip


def judged_poses(
    geometry: Geometry, q: FloatArray, *, orientation: bool
) -> tuple[Identifiability, FloatArray, Observability]:
    """Return what a calibration at postures `q` (N, n) determines, its Jacobian (N, k, p), and the indices.

    Raises `PlanningError` if the poses determine nothing.
    """
    model = error_model(geometry, orientation=orientation)
    nothing = np.zeros(model.size)
    positions, rotations = model.predict(q, nothing)
    sample = Sample.of(q, positions, rotations if orientation else None)
    found = identifiability(model, sample)
    if found.rank == 0:
        raise PlanningError("these poses determine no parameter")
    J = model.jacobian(sample, nothing, found.free)
    return found, J, Observability.of(triangle(J), len(q))


class _Search:
    """Search for postures that bring the measured point to given ones."""

    def __init__(self, model: ErrorModel, settings: PlanSettings, length: float) -> None:
        self.model, self.settings, self.length = model, settings, length
        self.nothing = np.zeros(model.size)
        lower, upper = limits_of(model)
        room = settings.margin * (upper - lower)
        self.lower, self.upper = lower + room, upper - room
        self.rng = np.random.default_rng(settings.seed)

    def posture_at(self, point: FloatArray) -> FloatArray | None:
        """Return the first posture (n,) found at `point` (3,) within all limits; None without one."""
        for _ in range(self.settings.tries):
            start = self.rng.uniform(self.lower, self.upper)
            q, left = inverse_kinematics(self.model, self.nothing, point, None, start, tolerance=_REACHED)
            if not left <= _REACHED or (q < self.lower).any() or (q > self.upper).any() or not self._above_floor(q):
                continue
            if dexterity(self.model, self.nothing, q[None], self.length)[0] >= self.settings.singularity:
                return q
        return None

    def _above_floor(self, q: FloatArray) -> bool:
        if self.settings.floor is None:
            return True
        return bool(joint_places(self.model, self.nothing, q)[:, 2].min() >= self.settings.floor)


def joint_places(model: ErrorModel, x: FloatArray, q: FloatArray) -> FloatArray:
    """Return the origins (n + 1, 3) [m] of the joints and of the measured frame at a posture `q` (n,)."""
    frames = np.empty((model.revolute.size + 2, 12))
    walk(model.assembled(x)[0], model.revolute, q, np.cos(q), np.sin(q), frames)
    return frames[1:, 9:].copy()


def layer_counts(count: int, layers: int, decay: float = DECAY) -> tuple[int, ...]:
    """Divide points among layers, the outermost first: shares are rounded up, the innermost has the rest.

    If that leaves it without points, the layers furthest above their share give some. Raises `ValueError` if there are
    fewer points than layers, or no layer.
    """
    if layers < 1 or count < layers:
        raise ValueError(f"{count} points are too few for {layers} layers")
    weights = decay ** np.arange(layers)
    shares = count * weights / weights.sum()
    counts = np.maximum(np.ceil(shares), 1.0).astype(np.int64)
    counts[-1] = count - counts[:-1].sum()
    while counts[-1] < 1:
        counts[np.argmax(np.where(counts > 1, counts - shares, -np.inf))] -= 1
        counts[-1] += 1
    return tuple(int(k) for k in counts)


def layer_radii(r_max: float, r_min: float, layers: int) -> FloatArray:
    """Return the radii (m,) [m], the largest first; `r_min` is not among them."""
    if not 0.0 < r_min < r_max < math.inf:
        raise ValueError(f"0 < r_min < r_max must hold, not {r_min} and {r_max}")
    return np.asarray(r_max - np.arange(layers) * (r_max - r_min) / layers)


def spiral(count: int, turn: float = 0.0) -> FloatArray:
    """Return unit vectors (count, 3) evenly over the half-space z > 0, rotated by `turn` [rad] about z."""
    k = np.arange(count)
    z = 1.0 - (k + 0.5) / count
    azimuth = turn + 2.0 * np.pi * k / GOLDEN
    rim = np.sqrt(1.0 - z * z)
    return np.column_stack((rim * np.cos(azimuth), rim * np.sin(azimuth), z))
