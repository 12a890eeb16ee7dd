"""Settings of the online estimator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OnlineSettings:
    """Filters, forgetting and reports of the online estimator."""

    # cut-off (-6 dB) of the linear-phase low-pass on position, velocity and torque, and of the parallel filter on both
    # sides of the regression
    cutoff_hz: float = 10.0
    update_hz: float = 100.0  # rate of the parameter updates; every frame enters through the filters
    memory_s: float = 120.0  # longest memory: for a constant model, data this old have lost 1 - 1/e of their weight
    # alpha, beta: variable forgetting (HIT eq. 44), per frame: lambda = (1 - alpha) + alpha*exp(beta*e^2)
    alpha: float = 0.05
    beta: float = -4.68
    # excess_on, excess_off: forgetting speeds up when a joint's mean squared innovation exceeds `excess_on` times its
    # usual level, until it is below `excess_off` times that level
    excess_on: float = 6.0
    excess_off: float = 1.5
    innovation_s: float = 0.3  # averaging time of that mean squared innovation [s]
    excitation_s: float = 5.0  # window of the excitation report [s]; it covers the last one to two windows
    stale_s: float = 60.0  # an estimate not excited for this long is reported as stale [s]
    # samples of joint `j` count only where |dq_j| is at least this [rad/s or m/s], and never below
    # `RobotModel.standstill_velocity`
    min_velocity: tuple[float, ...] | None = None
    # missing frames are bridged up to this long [s]; None for a quarter period of the cut-off
    max_gap_s: float | None = None

    def __post_init__(self) -> None:
        """Check the ranges; raise `ValueError`."""
        for name in ("cutoff_hz", "update_hz", "memory_s", "innovation_s", "excitation_s", "stale_s"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if not 0.0 < self.alpha < 1.0:
            raise ValueError(f"alpha must lie between 0 and 1, not {self.alpha}")
        if not self.beta < 0.0:
            raise ValueError(f"beta must be negative, not {self.beta}")
        if not self.excess_on > self.excess_off > 1.0:
            raise ValueError("excess_on must exceed excess_off, and that 1")
        if self.max_gap_s is not None and not self.max_gap_s > 0.0:
            raise ValueError(f"max_gap_s must be positive, not {self.max_gap_s}")
        if self.min_velocity is not None and not all(v >= 0.0 for v in self.min_velocity):
            raise ValueError("min_velocity must not be negative")
