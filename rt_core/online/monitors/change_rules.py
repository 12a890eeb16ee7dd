"""Settings of the detector of changes, and what a cause has to keep to: no negative friction, no impossible payload."""

from dataclasses import dataclass

import numpy as np

from rt_core.online._state import PAYLOAD
from rt_core.online.monitors.change_hypotheses import Fit
from rt_core.online.monitors.payload_estimate import PRESENT, PayloadEstimate
from rt_core.types import FloatArray

#: Motion in which `rt_core.online.monitors.velocity` sees a gross error [s].
VELOCITY_KNOWN_S = 3.0


@dataclass(frozen=True)
class ChangeSettings:
    """Settings of the change detector.

    Attributes
    ----------
    false_alarm_hours : float
        Mean time of motion between two false alarms of an arm [h].
    excess : float
        Tolerated relative rise of a joint's mean squared residual, limited to 1 to 2.5 standard deviations of its
        blocks.
    error : float
        Probability of a wrong cause, for changes that one of the hypotheses describes.
    explained : float
        Minimum share of the rise that a reported hypothesis explains.
    learn_s, memory_s : float
        Motion from which the usual level is first learned, and over which it is averaged later [s].
    classify_s : float
        Motion after which an unclassified change is ambiguous [s].
    settle_s : float
        Motion for which the estimate of a new payload settles before detection goes on [s].
    capacity_kg : float
        Largest payload that is believed.
    least_s : float
        Motion before a payload is reported [s]: with measured velocities, until it is known whether they are wrong.
    """

    false_alarm_hours: float = 10_000.0
    excess: float = 0.5
    error: float = 1e-3
    explained: float = 0.8
    learn_s: float = 30.0
    memory_s: float = 600.0
    classify_s: float = 20.0
    settle_s: float = 5.0
    capacity_kg: float = np.inf
    least_s: float = 0.0


def turns_friction(best: Fit, friction: FloatArray, baseline: FloatArray) -> bool:
    """Return whether a term of friction would be negative, beyond what is uncertain.

    `friction` (n, terms) of the model, NaN where unknown, and `baseline` (n, d - 1) of earlier changes.
    """
    select = best.hypothesis.select[:, PAYLOAD:-2]
    used = select.any(axis=2) & np.isfinite(friction)
    now = friction + baseline[:, PAYLOAD:-2] + select @ best.values
    return bool((now < -PRESENT * (select @ best.std))[used].any())


def payload_doubt(change: PayloadEstimate, carried: PayloadEstimate | None, capacity_kg: float) -> str:
    """Return why a change of the payload cannot be, empty if it can: it ends between nothing and the capacity."""
    mass = float(change.phi[0])
    total = mass + (float(carried.phi[0]) if carried is not None else 0.0)
    least = -PRESENT * (change.mass_std if carried is None else np.hypot(change.mass_std, carried.mass_std))
    if carried is None and mass < least:
        return f"{-mass:.3g} kg cannot be released, for none were attached"
    return f"the arm would carry {total:.3g} kg" if total < least or total + least > capacity_kg else ""
