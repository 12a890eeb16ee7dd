"""Settings of the online estimator."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt, Interval, Lt

from rt_core.settings import INFINITE, Bounded, NonNegative, Positive


@dataclass(frozen=True)
class OnlineSettings(Bounded):
    """Filters, forgetting and reports of the online estimator."""

    # cut-off (-6 dB) of the linear-phase low-pass on position, velocity and torque, and of the parallel filter on both
    # sides of the regression
    cutoff_hz: Positive = 10.0
    update_hz: Positive = 100.0  # rate of the parameter updates; every frame enters through the filters
    memory_s: Annotated[float, Gt(0.0), INFINITE] = (
        120.0  # longest memory: for a constant model, data this old have lost 1 - 1/e of their weight
    )
    # alpha, beta: variable forgetting (HIT eq. 44), per frame: lambda = (1 - alpha) + alpha*exp(beta*e^2)
    alpha: Annotated[float, Interval(gt=0.0, lt=1.0)] = 0.05
    beta: Annotated[float, Lt(0.0)] = -4.68
    # excess_on, excess_off: forgetting speeds up when a joint's mean squared innovation exceeds `excess_on` times its
    # usual level, until it is below `excess_off` times that level
    excess_on: Annotated[float, Gt(1.0), INFINITE] = 6.0
    excess_off: Annotated[float, Gt(1.0)] = 1.5
    innovation_s: Positive = 0.3  # averaging time of that mean squared innovation [s]
    excitation_s: Positive = 5.0  # window of the excitation report [s]; it covers the last one to two windows
    stale_s: Annotated[float, Gt(0.0), INFINITE] = (
        60.0  # an estimate not excited for this long is reported as stale [s]
    )
    # samples of joint `j` count only where |dq_j| is at least this [rad/s or m/s], and never below
    # `RobotModel.standstill_velocity`
    min_velocity: tuple[NonNegative, ...] | None = None
    # missing frames are bridged up to this long [s]; None for a quarter period of the cut-off
    max_gap_s: Positive | None = None

    def __post_init__(self) -> None:
        """Check the bounds; raise `ValueError`."""
        super().__post_init__()
        if not self.excess_on > self.excess_off:
            raise ValueError("excess_on must exceed excess_off")
