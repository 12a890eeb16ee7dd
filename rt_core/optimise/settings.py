"""Settings and budgets of the optimisers, and those of the papers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Scaling = Literal["none", "diagonal"]


@dataclass(frozen=True)
class Settings:
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

    particles: int = 100
    c1: float = 1.5
    c2: float = 1.5
    w_start: float = 0.9
    w_end: float = 0.4
    w_constant: float = 0.7298
    velocity_limit: float = 0.1
    mu_start: float = 1e-2
    mu_limit: float = 1e3
    scaling: Scaling = "none"
    early_factor: float = 10.0

    def __post_init__(self) -> None:
        """Raise ValueError for values outside their range."""
        if self.particles < 2:
            raise ValueError(f"particles must be at least 2, not {self.particles}")
        for name in ("c1", "c2", "w_start", "w_end", "w_constant"):
            value = getattr(self, name)
            if not (value >= 0.0 and math.isfinite(value)):
                raise ValueError(f"{name} must be finite and not negative, not {value}")
        if not 0.0 < self.velocity_limit <= 1.0:
            raise ValueError(f"velocity_limit must be above 0 and at most 1, not {self.velocity_limit}")
        if not 0.0 < self.mu_start < self.mu_limit < math.inf:
            raise ValueError(f"0 < mu_start < mu_limit must hold, not {self.mu_start} and {self.mu_limit}")
        if self.scaling not in ("none", "diagonal"):
            raise ValueError(f"unknown scaling {self.scaling!r}; known: none, diagonal")
        if not self.early_factor >= 1.0:
            raise ValueError(f"early_factor must be at least 1, not {self.early_factor}")


@dataclass(frozen=True)
class Budget:
    """Limits of a search."""

    swarm_iterations: int = 300  # of the swarm, or generations of the genetic algorithm
    lm_iterations: int = 100  # of Levenberg-Marquardt: trial steps, accepted or not
    evaluations: int | None = None  # largest number of evaluations of the objective
    tolerance: float | None = None  # the search ends as soon as the best cost is at most this

    def __post_init__(self) -> None:
        """Raise ValueError for values outside their range."""
        for name in ("swarm_iterations", "lm_iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.evaluations is not None and self.evaluations < 1:
            raise ValueError(f"evaluations must be at least 1, not {self.evaluations}")
        if self.tolerance is not None and not math.isfinite(self.tolerance):
            raise ValueError(f"tolerance must be finite, not {self.tolerance}")


#: Torque fit of Jing et al. 2025 (Actuators 14, 497).
DYN = (Settings(), Budget())
#: Kinematic calibration of Jing et al. 2025; the cost must be a position error in metres (tolerance 0.5 mm).
KIN = (Settings(particles=60, c1=1.8, c2=1.6), Budget(swarm_iterations=50, lm_iterations=20, tolerance=0.5e-3))
#: Excitation design of Zhang et al. 2025 (9 joints).
HYP = (Settings(particles=70, c1=2.0, c2=2.0), Budget(swarm_iterations=200))
