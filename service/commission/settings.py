"""Settings of a commissioning."""

from dataclasses import asdict, dataclass, field
from typing import Any

from rt_core.identification.methods import Method


@dataclass(frozen=True)
class Payload:
    """A body of known mass [kg] with its centre [m] in the flange frame."""

    mass: float
    centre: tuple[float, float, float]


@dataclass(frozen=True)
class CommissionSettings:
    """Sizes of motions, times, and the criterion of validation.

    `small_rad`, `small_m`: size of the first motion of each joint [rad, m]. `speeds` of the friction sweep are shares
    of the velocity limits, ascending; `sweep_s` is the time at constant speed, each way, and `room` the share of each
    joint's range that sweeps use, about the initial posture. `period_s`, `harmonics`, `starts` and `seed` are those of
    the design of the trajectories, `excite` further parameters of that job. `first_speed` is the share of full speed
    for the first run of a designed trajectory. `method` is that of the identification; `least_R` the smallest
    correlation of measured and predicted torque of each joint on the validation run. `promote`: make the model the
    arm's active one, if it is validated.
    """

    small_rad: float = 0.06
    small_m: float = 0.01
    speeds: tuple[float, ...] = (0.006, 0.012, 0.025, 0.05, 0.1, 0.2)
    sweep_s: float = 2.5
    room: float = 0.4
    period_s: float = 10.0
    harmonics: int = 5
    starts: int = 1
    seed: int = 0
    excite: dict[str, Any] = field(default_factory=dict)
    first_speed: float = 1.0 / 3.0
    periods: int = 3
    validation_periods: int = 2
    method: Method = "wls"
    least_R: float = 0.97
    payload: Payload | None = None
    promote: bool = False

    @property
    def longest_period_s(self) -> float:
        """Period of the slow run, the longest one."""
        return self.period_s / min(self.first_speed, 1.0)

    @property
    def longest_run_s(self) -> float:
        """Length of the longest run of a designed trajectory."""
        return max(self.longest_period_s, max(self.periods, self.validation_periods) * self.period_s)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values, to compare with those of an earlier call."""
        found = asdict(self)
        found["speeds"] = list(self.speeds)
        if self.payload is not None:
            found["payload"]["centre"] = list(self.payload.centre)
        return found
