"""A simulated laser tracker with noise and bad readings, and an arm whose geometry differs from the nominal one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval
from scipy.spatial.transform import Rotation

from rt_core.calibration.elements import FRAME
from rt_core.calibration.error_model import ErrorModel, error_model
from rt_core.calibration.geometry import Geometry
from rt_core.settings import AnyShare, Bounded, Count
from rt_core.types import BoolArray, FloatArray
from sim_backend.errors import SimulationConfigError

#: An error [m or rad].
Small = Annotated[float, Interval(ge=0.0, lt=1.0)]


@dataclass(frozen=True)
class TrackerSettings(Bounded):
    """Errors of the arm's geometry, and properties of the tracker; errors are standard deviations."""

    refusal: ClassVar[type[ValueError]] = SimulationConfigError
    error_length: Small = 1e-3  # of the arm's geometry [m]
    error_angle: Small = 1e-3  # [rad]
    noise: Small = 5e-5  # of each coordinate of a position [m]
    noise_angle: Small = 1e-4  # of the rotation about each axis [rad]
    outliers: AnyShare = 0.0  # share of bad readings
    outlier_size: Small = 0.02  # of bad readings [m]
    orientation: bool = False  # whether the tracker measures it
    own_frame: bool = True  # whether its frame differs from the robot's base
    target: Small = 0.05  # distance of the target from the tip, in a drawn direction [m]
    place: tuple[float, float, float] | None = None  # or its position in the frame of the tip [m]
    # place of the tracker; the base in the tracker's frame depends on it
    station: Annotated[int, Interval(ge=1, le=1000)] = 1
    seed: Count = 0  # of the arm, its base and the target; also of noise and bad readings if `noise_seed` is None
    noise_seed: Count | None = None  # of noise and bad readings

    def __post_init__(self) -> None:
        """Check the bounds, and the place of the target."""
        super().__post_init__()
        if self.place is not None and not np.abs(self.place).max() < 10.0:
            raise SimulationConfigError(f"the target must be within 10 m of the tip, not at {self.place}")


@dataclass(frozen=True, eq=False)
class TrackedArm:
    """An arm with its true geometry, and a tracker.

    `model` and `errors` (P,) are the truth: base in the tracker's frame, target on the flange, and the errors.
    """

    model: ErrorModel
    errors: FloatArray
    settings: TrackerSettings

    @classmethod
    def of(
        cls, geometry: Geometry, settings: TrackerSettings, errors: Mapping[str, float] | None = None,
        base: tuple[FloatArray, FloatArray] | None = None, tool: tuple[FloatArray, FloatArray] | None = None,
    ) -> "TrackedArm":  # fmt: skip
        """Draw the errors of an arm, its base and its target, or take given ones.

        Given are `errors` by name [m] or [rad], all others zero; rotation (3, 3) and translation (3,) [m] of the `base`
        in the tracker's frame at this station, and of the target (`tool`) in the last frame.
        """
        rng = np.random.default_rng([settings.seed, 1])
        model = error_model(geometry, orientation=settings.orientation)
        std = np.array([settings.error_angle if unit == "rad" else settings.error_length for unit in model.units])
        found = np.where(model.priority == FRAME, 0.0, rng.normal(0.0, 1.0, model.size) * std)
        if errors is not None:
            found = np.zeros(model.size)
            for name, value in errors.items():
                found[model.index(name)] = value
        if settings.own_frame:
            drawn = _drawn_rotation(rng), rng.uniform(-3.0, 3.0, 3)
            if settings.station > 1:
                other = np.random.default_rng([settings.seed, 3, settings.station])
                drawn = _drawn_rotation(other), other.uniform(-3.0, 3.0, 3)
            model = model.with_frame("base", *(drawn if base is None else base))
        R, t = model.frame("tool", np.zeros(model.size))
        direction = rng.normal(size=3)
        away = settings.target * direction / np.linalg.norm(direction)
        if settings.place is not None:
            away = R @ np.array(settings.place)
        model = model.with_frame("tool", R, t + away) if tool is None else model.with_frame("tool", *tool)
        return cls(model, found, settings)

    def exact(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return positions (N, 3) [m] and rotations (N, 3, 3) of the target in the tracker's frame at `q` (N, n)."""
        return self.model.predict(q, self.errors)

    def measure(self, q: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Return readings (N, 3), or (N, 7) with unit quaternions x, y, z, w, and flags of bad ones (N,)."""
        s = self.settings
        own = [] if s.station == 1 else [s.station]
        rng = np.random.default_rng([s.seed if s.noise_seed is None else s.noise_seed, 2, *own])
        positions, rotations = self.exact(q)
        positions = positions + rng.normal(0.0, s.noise, positions.shape) if s.noise else positions
        bad = np.zeros(len(q), dtype=np.bool_)
        bad[rng.permutation(len(q))[: round(s.outliers * len(q))]] = True
        positions[bad] += rng.normal(0.0, s.outlier_size, (int(bad.sum()), 3))
        if not s.orientation:
            return positions, bad
        turns = Rotation.from_rotvec(rng.normal(0.0, 1.0, (len(q), 3)) * s.noise_angle)
        measured = (turns * Rotation.from_matrix(rotations)).as_quat(canonical=True)
        return np.hstack((positions, measured)), bad


def _drawn_rotation(rng: np.random.Generator) -> FloatArray:
    Q, R = np.linalg.qr(rng.normal(size=(3, 3)))
    Q = Q * np.sign(np.diag(R))
    return np.asarray(Q * np.sign(np.linalg.det(Q)))
