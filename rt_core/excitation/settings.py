"""Settings of an excitation design."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Interval, Len

from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.shapes import Box, Capsule, Region
from rt_core.settings import AtLeastOne, Bounded, Magnitude, Positive

Objective = Literal["condition", "d_optimal", "e_optimal"]
Columns = Literal["all", "rigid"]
Swarm = Literal["pso", "pso_linear", "tcs_pso", "ga"]
Optimiser = Literal[Swarm, "gradient"]
#: Relative difference below which frequencies are the same: three times 0.1 is not quite 0.3.
SAME = 1e-9
#: Base frequency [Hz]: a period of 10 ms to nearly three hours.
Frequency = Annotated[float, Interval(ge=1e-4, le=100.0)]
#: Share of a limit; with the least of it no motion shows anything.
Fraction = Annotated[float, Interval(ge=1e-3, le=1.0)]
PerJoint = Annotated[tuple[Magnitude, ...], Len(1)]


@dataclass(frozen=True, kw_only=True)
class DesignSettings(Bounded):
    """What is wanted of a motion, its limits and the effort of the search; requests contain these, too."""

    refusal: ClassVar[type[ValueError]] = ExcitationError
    # minimise the condition number of the stacked base regressor `W` (HYP, DYN) or `-log det` of the information `W'W`
    # per row, or maximise its smallest eigenvalue
    objective: Objective = "condition"
    # scale the columns of `W` to a root-mean-square of one first: units and sizes of the parameters, and the torque of
    # the motion, then do not matter
    scaled: bool = True
    # base parameters that count: those of links, friction, rotors and offsets, or of the links alone
    columns: Columns = "all"
    rest: bool = True  # begin and end a period at rest, with zero acceleration (HYP)
    harmonics: AtLeastOne = 5
    # upper limit of the harmonics, such as the lowest resonance of the arm (DYN)
    f_avoid_hz: Annotated[float, Interval(ge=1e-4, le=1e4)] | None = None
    # position_fraction, velocity_fraction, acceleration_fraction, effort_fraction: share of each joint's limits that
    # the motion may use; of the position range about its middle
    position_fraction: Fraction = 0.95
    velocity_fraction: Fraction = 0.8
    acceleration_fraction: Fraction = 0.8
    effort_fraction: Fraction = 0.8
    # limit for each joint [rad/s^2] or [m/s^2]; if None five times the velocity limit per second
    acceleration: PerJoint | None = None
    # box in the base frame [m] for the tip
    workspace: tuple[tuple[float, float], tuple[float, float], tuple[float, float]] | None = None
    # further regions, for any point of the arm (`rt_core.excitation.workspace_regions`)
    regions: tuple[Region, ...] = ()
    bodies: tuple[Capsule, ...] = ()  # parts of the arm and its surroundings that must not touch
    clearance_m: Annotated[float, Interval(ge=0.0, le=10.0)] = 0.0  # minimum distance of bodies [m]
    # bodies to compare; if None all that are not on the same or neighbouring links
    pairs: tuple[tuple[str, str], ...] | None = None
    # bodies not to compare, such as shapes that overlap at their joint in every posture
    skip_pairs: tuple[tuple[str, str], ...] = ()
    # minimum share of time below `slow_velocity` for each joint, to show friction in the Stribeck region
    slow_share: Annotated[float, Interval(ge=0.0, lt=1.0)] = 0.0
    # of each joint [rad/s] or [m/s]; if None a tenth of the velocity limit
    slow_velocity: PerJoint | None = None
    # independent searches, size of the swarm or population, and iterations of each (HYP: 70 and 200)
    starts: AtLeastOne = 1
    particles: Annotated[int, Ge(2)] = 70
    iterations: AtLeastOne = 200


@dataclass(frozen=True, kw_only=True)
class ExcitationSettings(DesignSettings):
    """Series, objective, limits and search effort of a design."""

    f0_hz: Frequency = 0.1  # base frequency, whose inverse is the period
    samples: Annotated[int, Interval()] | None = None  # of a search; 20 a period of the last harmonic if None
    # added to the objective per unit of relative excess over a limit, summed over joints and quantities (HYP:
    # `f = cond + rho`); if None, see `rt_core.excitation.design.Designer.slope`
    penalty: Positive | None = None

    def __post_init__(self) -> None:
        """Check the bounds, and that no harmonic is above `f_avoid_hz`; raise `ExcitationError`."""
        super().__post_init__()
        if self.rest and self.harmonics < 2:
            raise ExcitationError(f"harmonics must be at least 2 for a motion from rest to rest, not {self.harmonics}")
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
