"""Outside forces on a simulated arm: a force and a moment in the base frame, on a point fixed to a link.

At the joints they are `J' f` with the Jacobian of that point at each stage of the integration.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rt_core.jit import kernel
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray
from sim_backend.arm.layout import PUSH_FORCE, PUSH_MOMENT, PUSH_POINT, PUSHED, ArmArrays
from sim_backend.arm.settings import ForceSettings
from sim_backend.errors import SimulationConfigError

#: Longest step of a rising or falling force.
FORCE_STEP_S = 0.01
#: Name of the flange in place of a link.
TIP = "tip"


@kernel
def take_outside_torque(arrays: ArmArrays, torque: FloatArray) -> None:
    """Subtract `J' f` of all outside forces from `torque` (n,); `work` is as `mass_and_bias` leaves it."""
    geometry, parameters, work = arrays.arm[:, :37], arrays.parameters, arrays.work
    for link in range(torque.shape[0]):
        fx, fy, fz = parameters[PUSH_FORCE, link], parameters[PUSH_FORCE + 1, link], parameters[PUSH_FORCE + 2, link]
        mx, my, mz = parameters[PUSH_MOMENT, link], parameters[PUSH_MOMENT + 1, link], parameters[PUSH_MOMENT + 2, link]
        if fx == 0.0 and fy == 0.0 and fz == 0.0 and mx == 0.0 and my == 0.0 and mz == 0.0:
            continue
        for i in range(link + 1):  # from base coordinates into the link's own
            k = work[i]
            fx, fy, fz = (
                k[0] * fx + k[3] * fy + k[6] * fz,
                k[1] * fx + k[4] * fy + k[7] * fz,
                k[2] * fx + k[5] * fy + k[8] * fz,
            )
            mx, my, mz = (
                k[0] * mx + k[3] * my + k[6] * mz,
                k[1] * mx + k[4] * my + k[7] * mz,
                k[2] * mx + k[5] * my + k[8] * mz,
            )
        px, py, pz = parameters[PUSH_POINT, link], parameters[PUSH_POINT + 1, link], parameters[PUSH_POINT + 2, link]
        mx += py * fz - pz * fy
        my += pz * fx - px * fz
        mz += px * fy - py * fx
        for i in range(link, -1, -1):
            g, k = geometry[i], work[i]
            if g[36] > 0.5:
                torque[i] -= g[33] * mx + g[34] * my + g[35] * mz
            else:
                torque[i] -= g[33] * fx + g[34] * fy + g[35] * fz
            fx, fy, fz = (
                k[0] * fx + k[1] * fy + k[2] * fz,
                k[3] * fx + k[4] * fy + k[5] * fz,
                k[6] * fx + k[7] * fy + k[8] * fz,
            )
            mx, my, mz = (
                k[0] * mx + k[1] * my + k[2] * mz + k[10] * fz - k[11] * fy,
                k[3] * mx + k[4] * my + k[5] * mz + k[11] * fx - k[9] * fz,
                k[6] * mx + k[7] * my + k[8] * mz + k[9] * fy - k[10] * fx,
            )


@dataclass(frozen=True)
class _Step:
    """A share of a force, from the first sample not before its time."""

    sample: int
    link: int
    settings: ForceSettings
    share: float


def _link_index(model: RobotModel, link: str, what: str) -> int:
    names = [joint.name for joint in model.joints]
    if link == TIP:
        return model.n - 1
    if link not in names:
        raise SimulationConfigError(
            f"{what}: '{link}' is not a link of robot '{model.name}': '{TIP}' or, by the joint that moves it, "
            + ", ".join(names)
        )
    return names.index(link)


def _steps(model: RobotModel, forces: Sequence[ForceSettings], rate_hz: float) -> list[_Step]:
    """Return the steps of all forces in order of time; `SimulationConfigError`: unknown link, or two forces on one."""
    steps: list[_Step] = []
    until_s: dict[int, float] = {}
    for force in sorted(forces, key=lambda force: force.time_s):
        link = _link_index(model, force.link, f"force at {force.time_s:g} s")
        if force.time_s < until_s.get(link, -1.0):
            raise SimulationConfigError(
                f"force at {force.time_s:g} s: another one acts on that link until {until_s[link]:g} s; "
                "add the two up, or let one end before"
            )
        count = max(1, math.ceil(force.ramp_s / FORCE_STEP_S - 1e-9))
        edges = [(force.time_s + force.ramp_s * k / count, k / count) for k in range(1, count + 1)]
        until_s[link] = math.inf
        if force.duration_s is not None:
            until_s[link] = end_s = force.time_s + force.duration_s
            edges += [(end_s - force.ramp_s * (count - k) / count, 1.0 - k / count) for k in range(1, count + 1)]
        steps += [_Step(math.ceil(time_s * rate_hz - 1e-9), link, force, share) for time_s, share in edges]
    return sorted(steps, key=lambda step: step.sample)


class OutsideForces:
    """Outside forces on one simulated arm, in the rows of its kernels' arrays (`sim_backend.arm.layout`)."""

    def __init__(
        self, model: RobotModel, forces: Sequence[ForceSettings], rate_hz: float, parameters: FloatArray,
        scalars: FloatArray,
    ) -> None:  # fmt: skip
        self._model, self._parameters, self._scalars = model, parameters, scalars
        self._steps = _steps(model, forces, rate_hz)
        self.clear()

    def clear(self) -> None:
        """Remove all forces and restart those of the settings."""
        self._at = 0
        self._parameters[PUSH_POINT : PUSH_MOMENT + 3] = 0.0
        self._scalars[PUSHED] = 0.0

    @property
    def next_sample(self) -> int | None:
        """Sample before which the next change is due, None if there is none left."""
        return self._steps[self._at].sample if self._at < len(self._steps) else None

    def apply(self, sample: int) -> bool:
        """Make the changes due before `sample`; return whether there were any."""
        first = self._at
        while self._at < len(self._steps) and self._steps[self._at].sample < sample:
            step = self._steps[self._at]
            force, moment = (step.share * np.array(v) for v in (step.settings.force, step.settings.moment))
            self.set(step.settings.link, step.settings.point, force, moment)
            self._at += 1
        return self._at > first

    def set(
        self, link: str, point: Sequence[float] | FloatArray, force: Sequence[float] | FloatArray,
        moment: Sequence[float] | FloatArray,
    ) -> None:  # fmt: skip
        """Set `force` and `moment` on `point` of `link`.

        Raises `SimulationConfigError` for an unknown link, or a vector without three finite components.
        """
        index = _link_index(self._model, link, "outside force")
        vectors = [np.array(v, dtype=np.float64) for v in (point, force, moment)]
        for name, vector in zip(("point", "force", "moment"), vectors, strict=True):
            if vector.shape != (3,) or not np.all(np.isfinite(vector)):
                raise SimulationConfigError(f"{name} of the outside force on '{link}' must be 3 finite values")
        if link == TIP:
            vectors[0] = self._model.tip_translation + self._model.tip_rotation @ vectors[0]
        for row, vector in zip((PUSH_POINT, PUSH_FORCE, PUSH_MOMENT), vectors, strict=True):
            self._parameters[row : row + 3, index] = vector
        self._scalars[PUSHED] = float(self._parameters[PUSH_FORCE : PUSH_MOMENT + 3].any())
