"""Ranges of speed and load that a model was identified in, and what to say of a use outside them.

Friction is a law in speed and load that was seen in these ranges only; beyond them it is extrapolated. Nothing is
held: on simulated arms a friction frozen at the edge of its range turned errors of 0.5 % into 10 to 23 %.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rt_core.model.robot import RobotModel
from rt_core.model.temperature import MIN_SPAN_K
from rt_core.types import BoolArray, FloatArray

#: Share of the samples that a range covers: the largest few are noise, and differ between runs of one motion.
COVERED = 0.995
#: A use leaves a range beyond this multiple of it, so that a repetition of the motion does not: between the two runs of
#: the LWR4 speeds differed by less than 1.005 and loads by up to 1.21, between halves of simulated motions both by 1.03
#: (95 % of 156 pairs).
LEAVES = 1.25


def extent(values: FloatArray, use: BoolArray) -> FloatArray:
    """Return the magnitude (n,) that covers `COVERED` of the samples in use of `values` (K, n); zero without any."""
    columns = [np.abs(values[use[:, j] & np.isfinite(values[:, j]), j]) for j in range(values.shape[1])]
    return np.array([float(np.quantile(x, COVERED)) if x.size else 0.0 for x in columns])


@dataclass(frozen=True, eq=False)
class IdentifiedRanges:
    """Magnitudes of speed [rad/s or m/s] and torque or force [N*m or N] (n,) that a model was identified up to.

    `lower` and `upper` are the temperatures (n,) [degC] then, None if they were not recorded.
    """

    speed: FloatArray
    load: FloatArray
    lower: FloatArray | None = None
    upper: FloatArray | None = None

    def notes(self, model: RobotModel, use: "IdentifiedRanges") -> tuple[str, ...]:
        """Return a sentence for each joint and quantity that leaves these ranges in a use, whose ranges are `use`."""
        return (*self.speed_notes(model, use.speed), *self._load(model, use), *self._temperature(model, use))

    def speed_notes(self, model: RobotModel, speed: FloatArray, verb: str = "moves") -> Iterator[str]:
        """Yield a sentence for each joint that is faster, at `speed` (n,), than where its friction was identified."""
        still = model.standstill_velocity
        for j, joint in enumerate(model.joints):
            # what counts as rest is none of a motion, and a ratio to it says nothing
            if not np.isfinite(speed[j]) or speed[j] <= max(LEAVES * self.speed[j], still[j]):
                continue
            if self.speed[j] <= still[j]:
                yield (
                    f"joint {joint.name} {verb} at up to {speed[j]:.3g} {_unit(model, j)}/s, and did not move where "
                    "its friction was identified"
                )
            else:
                yield (
                    f"joint {joint.name} {verb} {speed[j] / self.speed[j]:.1f} x faster than where its friction was "
                    f"identified ({speed[j]:.3g} against {self.speed[j]:.3g} {_unit(model, j)}/s)"
                )

    def _load(self, model: RobotModel, use: "IdentifiedRanges") -> Iterator[str]:
        for j, joint in enumerate(model.joints):
            unit = "N*m" if joint.kind == "revolute" else "N"
            if self.load[j] == 0.0 < use.load[j]:
                yield f"joint {joint.name} carries {use.load[j]:.3g} {unit}, and was identified without any load"
            elif LEAVES * self.load[j] < use.load[j]:
                yield (
                    f"joint {joint.name} carries {use.load[j] / self.load[j]:.1f} x the load that it was identified "
                    f"with ({use.load[j]:.3g} against {self.load[j]:.3g} {unit})"
                )

    def _temperature(self, model: RobotModel, use: "IdentifiedRanges") -> Iterator[str]:
        if self.lower is None or self.upper is None or use.lower is None or use.upper is None:
            return
        for j, joint in enumerate(model.joints):
            beyond = max(self.lower[j] - use.lower[j], use.upper[j] - self.upper[j])
            if beyond > MIN_SPAN_K:  # a smaller change hardly shows in friction
                yield (
                    f"joint {joint.name} is at {use.lower[j]:.1f} to {use.upper[j]:.1f} degC, and was identified at "
                    f"{self.lower[j]:.1f} to {self.upper[j]:.1f} degC"
                )

    @property
    def plain(self) -> dict[str, list[float | None] | None]:
        """The ranges as lists, for a file."""
        values = {"speed": self.speed, "load": self.load, "lower_c": self.lower, "upper_c": self.upper}
        return {name: None if value is None else _plain(value) for name, value in values.items()}

    def text(self, model: RobotModel) -> str:
        """Return the speeds in words."""
        speeds = (f"{v:.3g} {_unit(model, j)}/s" for j, v in enumerate(self.speed))
        return f"friction was identified up to {', '.join(speeds)}"


def checked_speeds(values: Sequence[float] | None, n: int) -> FloatArray | None:
    """Return speeds (n,) from plain values; raises `ValueError` or `TypeError` if they are not `n` magnitudes."""
    if values is None:
        return None
    speeds = np.array(values, dtype=np.float64)
    if speeds.shape != (n,) or not (speeds >= 0.0).all():
        raise ValueError(f"speeds: expected {n} magnitudes")
    return speeds


def _plain(values: FloatArray) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]


def _unit(model: RobotModel, j: int) -> str:
    return "rad" if model.joints[j].kind == "revolute" else "m"
