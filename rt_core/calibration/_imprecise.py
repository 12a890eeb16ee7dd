"""Parameters that are too uncertain to be worth fitting, held one by one."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy

from rt_core.calibration._verdict import SIGNIFICANCE
from rt_core.calibration.fit import Objective
from rt_core.calibration.frames import settled
from rt_core.calibration.identifiability import Fixed, stand_ins
from rt_core.calibration.settings import CalibrationSettings
from rt_core.calibration.uncertainty import Dependence, Statistics, noise_std, statistics
from rt_core.types import BoolArray, FloatArray

#: A value is precise if one standard deviation moves the tool by less than this much of the noise ...
EFFECT_LIMIT = 1.0
#: ... or is at most this share of the value and this size [m or rad]: systematic errors drive parameters that nearly
#: cancel to large values.
RELATIVE_STD_LIMIT = 0.3
STD_LIMIT = 1e-3
_NAMED_SHARE = 0.2
_NEARLY = 0.5


def without_imprecise(
    objective: Objective, width: FloatArray, settings: CalibrationSettings, report: Callable[[int], None]
) -> tuple[Objective, tuple[Fixed, ...]]:
    """Fix imprecise parameters, the worst first, those of the arm before the frames; `report` gets the count so far.

    A parameter is kept if without it the fit is significantly worse than some earlier one with more parameters.  All
    earlier fits are compared: against the first alone the loss by one parameter is hidden among those fixed before
    without loss, and against the last alone many small losses add up.
    """
    dropped: list[Fixed] = []
    model, earlier = objective.model, [objective]
    needed = np.zeros(model.size, dtype=np.bool_)
    dependence = statistics(objective).dependence
    while objective.free.size > 1:
        report(len(dropped))
        found = statistics(objective)
        free = objective.free
        # by the plain deviations: correlated errors are no reason to fix a parameter that improves the fit
        useless, effect = imprecise(objective, found, noise_std(found, objective))
        useless &= ~needed[free]
        arm = useless & model.of_arm[free]
        if not useless.any():
            break
        candidates = np.where(arm if arm.any() else useless, effect, -1.0)
        # of those about equally bad the least useful one, so that noise does not choose
        near = candidates >= _NEARLY * candidates.max()
        worst = int(np.argmax(np.where(near, model.priority[free], -1)))
        others = np.delete(free, worst)
        x = objective.x.copy()
        x[free[worst]] = 0.0
        without = settled(replace(objective, free=others, x=x), width, settings, lambda: report(len(dropped)))
        if any(worse_by_more_than_chance(without, richer, dependence) for richer in earlier):
            needed[free[worst]] = True
            continue
        like = stand_ins(model.names, found.R, int(free[worst]), others, _NAMED_SHARE)
        dropped.append(Fixed(model.names[free[worst]], "imprecise", like))
        earlier.append(without)
        objective = without
    return objective, tuple(dropped)


def worse_by_more_than_chance(
    without: Objective, richer: Objective, dependence: Dependence, held: int | None = None
) -> bool:
    """Check whether the fit `without` some parameters of a `richer` one is significantly worse (F test).

    `held` is the number of these parameters, by default what the one has fewer than the other.

    If errors of successive poses are correlated, the limit is raised by the ratio of their blocks.
    """
    held = richer.free.size - without.free.size if held is None else held
    left = max(richer.sample.width * len(richer.sample) - richer.spent(), 1.0)
    fitted = richer.total(richer.x[richer.free])
    rise = replace(without, scale=richer.scale, prior=richer.prior).total(without.x[without.free]) - fitted
    chance = scipy.stats.f.isf(SIGNIFICANCE, held, left) * (max(dependence.ratio, 1.0) if dependence.found else 1.0)
    return bool(rise / held > chance * max(fitted / left, np.finfo(np.float64).tiny))


def imprecise(objective: Objective, found: Statistics, std: FloatArray) -> tuple[BoolArray, FloatArray]:
    """Return whether standard deviations (p,) are too large, and the effect of each on the tool, in scales."""
    free = objective.free
    effect = std * np.linalg.norm(found.R[:, free], axis=0) / np.sqrt(len(objective.sample))
    limit = np.minimum(RELATIVE_STD_LIMIT * np.abs(objective.x[free]), STD_LIMIT)
    return (std > limit) & (effect > EFFECT_LIMIT * found.noise), effect
