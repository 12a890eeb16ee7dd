"""Design a second trajectory for validation, with the same checks and different enough from the first.

The difference of two periodic motions is measured by their correlation: with `x` and `y` the joint positions about
their means, divided by half of each joint's range,

    rho(s) = sum_i mean(x_i(t) y_i(t + s)) / sqrt( sum_i mean(x_i^2) sum_i mean(y_i^2) )

and the difference is `1 - max |rho|` over all shifts `s`, also with `y` reversed in time: 0 for the same motion,
shifted, scaled, mirrored or reversed, and 1 for uncorrelated motions.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rt_core.excitation.design import Designer, ExcitationDesign, best_design
from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.fourier import FourierSeries
from rt_core.excitation.limits import Limits
from rt_core.excitation.search import Pulse
from rt_core.excitation.settings import SAME, ExcitationSettings
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

#: Shifts per period of the highest harmonic at which the correlation is evaluated.
_SHIFTS = 64
#: Offset of the seeds of validation trajectories from that of the first.
APART = 1000
#: Least difference from the first trajectory.
MIN_DIFFERENCE = 0.3


@dataclass(frozen=True, eq=False)
class Validation:
    """Validation trajectory, and its difference from the first."""

    design: ExcitationDesign
    difference: float


def difference(first: FourierSeries, second: FourierSeries, size: FloatArray) -> float:
    """Return the difference of two series of the same period, 0 to 1, as in the module docstring; `size` (n,).

    Raises `ExcitationError` if the series have different joints or periods, or one does not move.
    """
    if first.n != second.n:
        raise ExcitationError(f"one series has {first.n} joints, the other {second.n}")
    if abs(first.f0_hz - second.f0_hz) > SAME * first.f0_hz:
        raise ExcitationError(f"periods of {first.period_s:g} s and {second.period_s:g} s cannot be compared")
    count = max(first.harmonics, second.harmonics)
    x, y = (_phasors(series, size, count) for series in (first, second))
    power = float((np.abs(x) ** 2).sum() * (np.abs(y) ** 2).sum())
    if not power > 0.0:
        raise ExcitationError("a series that does not move cannot be compared")
    turn = np.exp(2j * np.pi * np.outer(np.arange(1, count + 1), np.arange(_SHIFTS * count) / (_SHIFTS * count)))
    forwards = np.abs(((np.conj(x) * y).sum(axis=0) @ turn).real)
    backwards = np.abs(((x * y).sum(axis=0) @ turn).real)
    return float(max(0.0, 1.0 - max(forwards.max(), backwards.max()) / np.sqrt(power)))


def design_validation(
    model: RobotModel, settings: ExcitationSettings, first: ExcitationDesign, *, seed: int = APART, tries: int = 10,
    pulse: Pulse | None = None,
) -> Validation:  # fmt: skip
    """Design a trajectory for validation, by searches with derivatives from the seeds `seed`, `seed + 1`, ...

    Parameters
    ----------
    settings : ExcitationSettings
        Of the second; its period must be that of the first.
    tries : int
        Maximum number of searches, those without a trajectory within the limits included.
    pulse : callable or None
        Called with the progress of all of them; an exception ends the design.

    Raises
    ------
    InfeasibleError
        If no search finds a trajectory within the limits.
    ExcitationError
        If no search gives one that is different enough.
    """
    if tries < 1:
        raise ExcitationError(f"tries must be at least 1, not {tries}")
    limits = Limits.of(model, settings)
    size = 0.5 * (limits.upper - limits.lower)
    designer = Designer(model, settings)
    most, designs = 0.0, []
    for k in range(tries):
        report = None if pulse is None else partial(_share_of_tries, pulse, k, tries)
        design = designer.design("gradient", seed + k, pulse=report)
        designs.append(design)
        if not design.accepted:
            continue
        found = difference(first.series, design.series, size)
        if found >= MIN_DIFFERENCE:
            return Validation(design, found)
        most = max(most, found)
    within = sum(design.accepted for design in designs)
    if not within:
        best_design(designs)  # raises with the violated limit
    raise ExcitationError(
        f"none of {within} trajectories within the limits, of {tries} searches, differs from the first by "
        f"{MIN_DIFFERENCE:g}, the best by {most:.3g}: try another seed, more harmonics, or wider limits"
    )


def _share_of_tries(pulse: Pulse, done: int, tries: int, share: float, cost: float) -> None:
    pulse((done + share) / tries, cost)


def _phasors(series: FourierSeries, size: FloatArray, count: int) -> NDArray[np.complex128]:
    """Return complex amplitudes `c` (n, count) of the positions over `size`: `q - q0 = Re sum_k c_k exp(j w_k t)`."""
    sine, cosine = series.plain
    found = np.zeros((series.n, count), dtype=np.complex128)
    found[:, : series.harmonics] = (cosine - 1j * sine) / size[:, None]
    return found
