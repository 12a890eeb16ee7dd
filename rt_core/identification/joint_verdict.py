"""Verdict on each joint, from the status of its parameters and the share of its torque that is explained.

A base parameter counts for the joint or link of its leading standard parameter.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from rt_core.identification.identify import EXPLAINED_LIMIT, Identification
from rt_core.identification.status import ParameterStatus
from rt_core.model.parameters import ParameterLayout
from rt_core.validation import Metrics

JointWord = Literal["well determined", "weak", "undetermined", "not explained"]

#: Least explained share of the torque's variance of a well determined joint.
WELL_EXPLAINED = 0.9
#: Share of a joint's parameters that decides between "well determined" and "weak", and "weak" and "undetermined".
_HALF = 0.5
_NAMED = 3  # parameters listed in a reason


@dataclass(frozen=True)
class JointVerdict:
    """The verdict on one joint."""

    # "well determined": no parameter is undetermined or from the prior, at least half are determined, and the torque is
    # explained to 90 %.  "weak": one of these fails.  "undetermined": half of the parameters or more are undetermined
    # or from the prior, or none is determined or doubtful beside one that is, or the fit as a whole is rejected.  "not
    # explained": the model does not account for this joint's torque
    word: JointWord
    counts: dict[str, int]  # number of parameters by status
    reason: str  # one short sentence


def verdicts_of(fit: Identification) -> tuple[JointVerdict, ...]:
    """Return the verdict on each joint of an identification."""
    return joint_verdicts(
        fit.base.layout, fit.status, fit.metrics, accepted=fit.verdict != "not_explained",
        negative_coulomb=fit.plausibility.negative_coulomb,
    )  # fmt: skip


def joint_verdicts(
    layout: ParameterLayout, status: Sequence[ParameterStatus], metrics: Metrics, *, accepted: bool = True,
    negative_coulomb: Sequence[int] = (),
) -> tuple[JointVerdict, ...]:  # fmt: skip
    """Return the verdict on each joint of a fit.

    Parameters
    ----------
    layout : ParameterLayout
        Of the base parameters (p,).
    status : sequence of ParameterStatus
        Of each of them (p,).
    metrics : Metrics
        Torque error of the fit, per joint.
    accepted : bool
        False if the fit as a whole does not explain the torque: then no joint is well determined.
    negative_coulomb : sequence of int
        Joints whose Coulomb friction came out negative.
    """
    out: list[JointVerdict] = []
    for j in range(metrics.count.size):
        mine = {layout.names[k]: status[k] for k in range(len(layout)) if layout.joint[k] == j}
        word, reason = _judge(metrics, j, mine, accepted, j in negative_coulomb)
        count = Counter(mine.values())
        out.append(JointVerdict(word, {s: count[s] for s in get_args(ParameterStatus) if count[s]}, reason))
    return tuple(out)


def _judge(
    metrics: Metrics, j: int, status: Mapping[str, str], accepted: bool, wrong_sign: bool
) -> tuple[JointWord, str]:
    """Return word and reason for joint `j`, whose parameters have `status` by name."""
    explained = float(metrics.explained[j])
    if metrics.count[j] == 0:
        return "not explained", "it has no rows: it never moves fast enough"
    if np.isnan(explained):
        return "not explained", "its torque is constant"
    if explained < EXPLAINED_LIMIT:
        return "not explained", f"{100.0 * max(explained, 0.0):.0f} % of its torque's variance is explained"
    if wrong_sign:
        return "not explained", "its Coulomb friction comes out negative"
    if not accepted:
        return "undetermined", "its torque is explained, but the fit as a whole is rejected"
    count, total = Counter(status.values()), len(status)
    if total == 0:
        return "well determined", "it has no parameters of its own"
    free = [name for name, word in status.items() if word in ("undetermined", "prior")]
    if free:
        names = ", ".join(free[:_NAMED]) + (f" and {len(free) - _NAMED} more" if len(free) > _NAMED else "")
        most = len(free) >= _HALF * total or count["determined"] + count["doubtful"] == 0
        taken = ": the prior stands in" if count["prior"] else ""
        return ("undetermined" if most else "weak"), f"the motion does not determine {names}{taken}"
    if explained < WELL_EXPLAINED:
        return "weak", f"only {100.0 * explained:.0f} % of its torque's variance is explained"
    small, doubtful = count["weak"] + count["dropped"], count["doubtful"]
    if doubtful > _HALF * total:
        return "weak", "something is not modelled: its values are doubtful, see the verdict"
    if count["determined"] < _HALF * total:
        also = f", {doubtful} more doubtful" if doubtful else ""
        return "weak", f"{small} of {total} parameters are too small to be known well{also}"
    parts = [f"{small} of {total} parameters are small, and known to be small"] if small else []
    parts += [f"{doubtful} of {total} doubtful"] if doubtful else []
    return "well determined", "; ".join(parts) or f"all {total} parameters are known"
