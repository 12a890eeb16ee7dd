"""Settings of an excitation design."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.shapes import Box, Capsule, Region

Objective = Literal["condition", "d_optimal", "e_optimal"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
Columns = Literal["all", "rigid"]
COLUMNS: tuple[Columns, ...] = get_args(Columns)
#: Relative difference below which frequencies are the same: three times 0.1 is not quite 0.3.
SAME = 1e-9
#: Range of the base frequency [Hz], both ends included: a period of 10 ms to nearly three hours.
MIN_F0_HZ, MAX_F0_HZ = 1e-4, 100.0


@dataclass(frozen=True)
class ExcitationSettings:
    """Series, objective, limits and search effort of a design."""

    # minimise the condition number of the stacked base regressor `W` (HYP, DYN) or `-log det` of the information `W'W`
    # per row, or maximise its smallest eigenvalue
    objective: Objective = "condition"
    # scale the columns of `W` to a root-mean-square of one first: units and sizes of the parameters, and the torque of
    # the motion, then do not matter
    scaled: bool = True
    # base parameters that count: those of links, friction, rotors and offsets, or of the links alone
    columns: Columns = "all"
    rest: bool = True  # begin and end a period at rest, with zero acceleration (HYP)
    # f0_hz, harmonics: base frequency, 1e-4 to 100 Hz, whose inverse is the period, and number of harmonics
    f0_hz: float = 0.1
    harmonics: int = 5
    f_avoid_hz: float | None = None  # upper limit of the harmonics, such as the lowest resonance of the arm (DYN)
    samples: int | None = None  # samples per period in the search; 20 per period of the highest harmonic if None
    # position_fraction, velocity_fraction, acceleration_fraction, effort_fraction: share of each joint's limits that
    # the motion may use; of the position range about its middle
    position_fraction: float = 0.95
    velocity_fraction: float = 0.8
    acceleration_fraction: float = 0.8
    effort_fraction: float = 0.8
    # limit for each joint [rad/s^2] or [m/s^2]; if None five times the velocity limit per second
    acceleration: tuple[float, ...] | None = None
    # box in the base frame [m] for the tip
    workspace: tuple[tuple[float, float], tuple[float, float], tuple[float, float]] | None = None
    # further regions, for any point of the arm (`rt_core.excitation.workspace_regions`)
    regions: tuple[Region, ...] = ()
    bodies: tuple[Capsule, ...] = ()  # parts of the arm and its surroundings that must not touch
    clearance_m: float = 0.0  # minimum distance of bodies [m]
    # bodies to compare; if None all that are not on the same or neighbouring links
    pairs: tuple[tuple[str, str], ...] | None = None
    # bodies not to compare, such as shapes that overlap at their joint in every posture
    skip_pairs: tuple[tuple[str, str], ...] = ()
    # minimum share of time below `slow_velocity` for each joint, to show friction in the Stribeck region
    slow_share: float = 0.0
    # of each joint [rad/s] or [m/s]; if None a tenth of the velocity limit
    slow_velocity: tuple[float, ...] | None = None
    # added to the objective per unit of relative excess over a limit, summed over joints and quantities (HYP:
    # `f = cond + rho`); if None, see `rt_core.excitation.design.Designer.slope`
    penalty: float | None = None
    # independent searches, size of the swarm or population, and iterations of each (HYP: 70 and 200)
    starts: int = 1
    particles: int = 70
    iterations: int = 200

    def __post_init__(self) -> None:
        """Check the ranges, and that no harmonic is above `f_avoid_hz`; raise `ExcitationError`."""
        if self.objective not in OBJECTIVES:
            raise ExcitationError(f"unknown objective {self.objective!r}; known: {', '.join(OBJECTIVES)}")
        if self.columns not in COLUMNS:
            raise ExcitationError(f"unknown columns {self.columns!r}; known: {', '.join(COLUMNS)}")
        for name, least in (("harmonics", 2 if self.rest else 1), ("starts", 1), ("particles", 2), ("iterations", 1)):
            if getattr(self, name) < least:
                raise ExcitationError(f"{name} must be at least {least}, not {getattr(self, name)}")
        for name in ("f0_hz", "f_avoid_hz", "penalty"):
            value = getattr(self, name)
            if value is not None and not (value > 0.0 and math.isfinite(value)):
                raise ExcitationError(f"{name} must be finite and above 0, not {value}")
        if not MIN_F0_HZ <= self.f0_hz <= MAX_F0_HZ:
            raise ExcitationError(f"f0_hz must be from {MIN_F0_HZ:g} to {MAX_F0_HZ:g} Hz, not {self.f0_hz:g}")
        for name in ("position", "velocity", "acceleration", "effort"):
            value = getattr(self, f"{name}_fraction")
            if not 0.0 < value <= 1.0:
                raise ExcitationError(f"{name}_fraction must be above 0 and at most 1, not {value}")
        if self.samples is not None and self.samples < 4 * self.harmonics:
            raise ExcitationError(
                f"samples must be at least 4 a harmonic, {4 * self.harmonics} for {self.harmonics}, not {self.samples}"
            )
        if self.f_avoid_hz is not None and self.harmonics * self.f0_hz > (1.0 + SAME) * self.f_avoid_hz:
            raise ExcitationError(
                f"the highest harmonic, {self.harmonics} times {self.f0_hz:g} Hz, is above the {self.f_avoid_hz:g} Hz "
                f"to be avoided: take fewer harmonics, or a base frequency of {self.f_avoid_hz / self.harmonics:g} Hz "
                "at most"
            )
        if not 0.0 <= self.slow_share < 1.0:
            raise ExcitationError(f"slow_share must be at least 0 and below 1, not {self.slow_share}")
        for value in self.slow_velocity or ():
            if not (value > 0.0 and math.isfinite(value)):
                raise ExcitationError(f"slow_velocity must be finite and above 0, not {value}")
        _ = self.every_region  # raises if the workspace is wrong

    @property
    def every_region(self) -> tuple[Region, ...]:
        """`regions`, after the `workspace` of the tip."""
        if self.workspace is None:
            return self.regions
        (x0, x1), (y0, y1), (z0, z1) = self.workspace
        return (Box((x0, y0, z0), (x1, y1, z1)), *self.regions)

    @property
    def grid(self) -> int:
        """Samples per period in the search."""
        return 20 * self.harmonics if self.samples is None else self.samples
