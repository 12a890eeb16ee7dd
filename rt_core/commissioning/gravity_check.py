"""Check of the torque along a small motion against the gravity of the description's links.

A joint that is inverted in all its signals passes every other check, and this one where the arm is symmetric about its
zero.  So the torque is also compared with that of an arm with this joint mirrored (`gravity_terms`).
"""

from collections.abc import Sequence

import numpy as np

from rt_core.commissioning.findings import Finding
from rt_core.commissioning.gravity_terms import GravityMotion, Term, mirrored
from rt_core.commissioning.joint_check import SURE

CHECK = "gravity as described"
#: Common wrong scales of command and position: degrees for radians, usual gear ratios.
_SHARED = (180.0 / np.pi, 100.0, 160.0)


def check_gravity(motion: GravityMotion, names: Sequence[str], *, short: bool = False) -> Finding:
    """Check that the torque is that of the description's links, and not that of an arm with this joint mirrored.

    `names` are those of the joints (n,).  With `short`, friction may be elastic over most of the path; it then changes
    by more than gravity, and only the level of the torque shows a fault.  The result is "ok" only if the mirrored joint
    is excluded, and "wrong" with kind "masses" if only the size is wrong.
    """
    joint, n = motion.joint, motion.n
    terms = motion.terms()
    shown = ", ".join(f"{term.factor:.3g} ± {term.std:.2g}" for term in terms if term.sized)
    own = next((term for term in terms if term.sized), Term(np.nan, np.nan, True))
    shown = f"{names[joint]}: {shown} times that of the description's links" if shown else names[joint]

    def found(verdict: str, text: str, kind: str = "") -> Finding:
        margin = abs(own.factor) / own.std - SURE if verdict != "cannot_tell" and own.std > 0.0 else np.nan
        assert verdict in ("ok", "wrong", "cannot_tell")
        return Finding(CHECK, joint, verdict, own.factor, own.std, margin, f"{shown}{text}", kind)  # type: ignore[arg-type]

    counted = [term for term in terms if term.level or not short]
    if any(term.wrong_sign for term in counted):
        fits = [names[j] for j in range(n) if _fits(motion.terms(mirrored(n, j)))]
        which = f" (as if {' or '.join(fits)} were inverted in all signals)" if fits else ""
        return found(
            "wrong",
            f", or of the wrong sign at another joint: positive directions of joint and description differ{which}, a "
            "zero is elsewhere, or the arm is mounted differently",
            "inverted",
        )
    if any(term.wrong_size for term in counted):
        return found(
            "wrong",
            ": check unit of the torque, gear ratio, torque constant and unit of the position; if the masses of the "
            "description are nominal, take them out",
            "masses",
        )
    if any(term.wrong_sign or term.wrong_size for term in terms):
        return found("cannot_tell", ": the torque changes along so short a way as friction does before it slides")
    if not any(term.right for term in terms):
        return found("cannot_tell", ": gravity shows too little in this posture to tell a direction by")
    if not motion.excludes(mirrored(n, joint)):
        return found("cannot_tell", ": an arm whose joint is inverted in all signals would tell the same here")
    return found("ok", "")


def tells_scale(motion: GravityMotion) -> bool:
    """Whether the motion excludes a common wrong scale of command and position, in either direction."""
    if motion.excludes() or not any(term.sized and term.right for term in motion.terms()):
        return False
    both = (None, mirrored(motion.n, motion.joint))
    return all(motion.excludes(signs, scale) for signs in both for scale in _SHARED)


def _fits(terms: list[Term]) -> bool:
    return any(term.right for term in terms) and not any(term.wrong_sign or term.wrong_size for term in terms)
