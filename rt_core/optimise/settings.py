"""Settings and budgets of the optimisers, and those of the papers."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

from rt_core.settings import INFINITE, AtLeastOne, Bounded, Finite, NonNegative, Positive, Share

#: Names of the optimisers.
Name = Literal["pso", "pso_linear", "tcs_pso", "ga", "lm", "pso_lm"]
Scaling = Literal["none", "diagonal"]


@dataclass(frozen=True)
class Settings(Bounded):
    """Parameters of the optimisers; each uses those that apply to it.

    Attributes
    ----------
    particles : int
        Size of the swarm, or of the genetic algorithm's population.
    c1, c2 : float
        Pull towards a particle's own best and towards the best of all.
    w_start, w_end : float
        Inertia weight, from the first to the last iteration (`pso` has a constant weight).
    w_constant : float
        Inertia weight of `pso`: the constriction value of Clerc and Kennedy (2002) for c1, c2 near 1.5.  With
        c1 = c2 = 2 a swarm of constant weight contracts only below 0.5.
    velocity_limit : float
        Largest step of a particle, as a share of each parameter's range.
    mu_start, mu_limit : float
        Damping of Levenberg-Marquardt: its start, and the limit above which it ends (`lm`) or returns to the swarm
        (`pso_lm`).
    scaling : {"none", "diagonal"}
        Damping matrix: `mu*I` as in the papers, for parameters of similar scale, or Marquardt's `mu*diag(J'J)`, which
        is independent of the parameters' units.
    early_factor : float
        `pso_lm` leaves the swarm when the best cost is within this factor of the tolerance, if there is one.
    """

    particles: Annotated[int, Ge(2)] = 100
    c1: NonNegative = 1.5
    c2: NonNegative = 1.5
    w_start: NonNegative = 0.9
    w_end: NonNegative = 0.4
    w_constant: NonNegative = 0.7298
    velocity_limit: Share = 0.1
    mu_start: Positive = 1e-2
    mu_limit: Positive = 1e3
    scaling: Scaling = "none"
    early_factor: Annotated[float, Ge(1.0), INFINITE] = 10.0

    def __post_init__(self) -> None:
        """Check the bounds; raise `ValueError`."""
        super().__post_init__()
        if not self.mu_start < self.mu_limit:
            raise ValueError(f"0 < mu_start < mu_limit must hold, not {self.mu_start} and {self.mu_limit}")


@dataclass(frozen=True)
class Budget(Bounded):
    """Limits of a search."""

    swarm_iterations: AtLeastOne = 300  # of the swarm, or generations of the genetic algorithm
    lm_iterations: AtLeastOne = 100  # of Levenberg-Marquardt: trial steps, accepted or not
    evaluations: AtLeastOne | None = None  # largest number of evaluations of the objective
    tolerance: Finite | None = None  # the search ends as soon as the best cost is at most this


#: Torque fit of Jing et al. 2025 (Actuators 14, 497).
DYN = (Settings(), Budget())
#: Kinematic calibration of Jing et al. 2025; the cost must be a position error in metres (tolerance 0.5 mm).
KIN = (Settings(particles=60, c1=1.8, c2=1.6), Budget(swarm_iterations=50, lm_iterations=20, tolerance=0.5e-3))
#: Excitation design of Zhang et al. 2025 (9 joints).
HYP = (Settings(particles=70, c1=2.0, c2=2.0), Budget(swarm_iterations=200))
