"""Settings of the online estimator of an elastic joint, and errors known from an off-line fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ElasticOnlineSettings:
    """Filters and forgetting of the estimator."""

    cutoff_hz: float = 10.0  # cut-off (-6 dB) of the linear-phase low-pass on both sides of the regression
    update_hz: float = 100.0  # rate of the rows, each of which updates the parameters
    # alpha, beta: variable forgetting (Sun et al., eq. 44), per update: lambda = (1 - alpha) + alpha*exp(beta*e^2)
    alpha: float = 0.05
    beta: float = -4.68
    constant: float | None = None  # constant forgetting factor per update, from 0.5 to 1, instead of the variable one
    min_velocity: float = 2e-3  # joint-side speed below which samples are left out [rad/s]
    smoothing: float = 0.0  # `eps` of `tanh(v/eps)` in place of the sign of the speed [rad/s], joint side
    # standard deviation of each initial value, as a share of it.  Forgetting never exceeds it
    start_spread: float = 1.0
    excitation_s: float = 5.0  # window of the excitation report [s]; it covers the last one to two windows
    # motion after which the noise level is valid [s]; before, a share of the torque is added to it
    settle_s: float = 10.0
    # missing frames are bridged up to this long [s]; None for a quarter period of the cut-off
    max_gap_s: float | None = None
    # largest possible speed [rad/s], joint side: a frame whose angles imply a higher one is left out
    top_velocity: float = 30.0

    def __post_init__(self) -> None:
        """Check the ranges; raise `ValueError`."""
        for name in ("cutoff_hz", "update_hz", "start_spread", "excitation_s", "settle_s", "top_velocity"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("min_velocity", "smoothing"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name)}")
        if not 0.0 < self.alpha < 1.0:
            raise ValueError(f"alpha must lie between 0 and 1, not {self.alpha}")
        if not -math.inf < self.beta < 0.0:
            raise ValueError(f"beta must be negative, not {self.beta}")
        if self.constant is not None and not 0.5 <= self.constant <= 1.0:
            raise ValueError(f"constant must lie between 0.5 and 1, not {self.constant}")
        if self.max_gap_s is not None and not 0.0 < self.max_gap_s < math.inf:
            raise ValueError(f"max_gap_s must be positive, not {self.max_gap_s}")


@dataclass(frozen=True)
class DeflectionErrors:
    """Errors of deflection, lag and zero, from the off-line fit that an online estimate starts from.

    They bias a stiffness by an amount that the direct regression alone does not show.
    """

    # by name, inverse less direct regression; intervals span both
    shift: Mapping[str, float] = field(default_factory=dict)
    # by name, the standard deviation due to lag and zero, which are taken as exact online
    std: Mapping[str, float] = field(default_factory=dict)
    doubtful: bool = False  # the off-line values are doubtful, and so are estimates from the same motion
