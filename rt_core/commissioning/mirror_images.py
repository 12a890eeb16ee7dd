"""Mirror images of an arm: several joints that are inverted in all their signals at once.

A check of one joint excludes that it alone is inverted, but not that it is together with others.  A planar arm whose
zero hangs or stands straight has an even potential; with `S = -I` then

    S g(S q) = -g(-q) = g(q),

and an upright arm whose links are symmetric about a plane has the same torque with all joints inverted that turn it out
of the plane.  So each set of joints is compared with all motions: a joint's direction is determined only if every set
with it is excluded.
"""

from collections.abc import Collection, Sequence
from itertools import combinations

from rt_core.commissioning.gravity_terms import GravityMotion, mirrored

#: Largest number of joints for which all `2^n` sets are tried.
_MAX = 12


def mirror_images(motions: Sequence[GravityMotion], joints: Collection[int]) -> dict[int, tuple[int, ...]]:
    """Find the joints whose direction is undetermined, with the smallest set that may be inverted together.

    Parameters
    ----------
    motions : sequence of GravityMotion
        Of all joints; one that the description does not explain excludes nothing.
    joints : collection of int
        Joints of interest.

    Returns
    -------
    dict
        For each of these that is undetermined, the smallest such set with it; for an arm with more than twelve joints,
        all of them.
    """
    motions = [motion for motion in motions if not motion.excludes()]
    left, found = set(joints), dict[int, tuple[int, ...]]()
    if not motions or motions[0].n > _MAX:
        everything = tuple(range(motions[0].n)) if motions else tuple(sorted(left))
        return dict.fromkeys(sorted(left), everything)
    n = motions[0].n
    for size in range(1, n + 1):
        for which in combinations(range(n), size):
            asked = left.intersection(which)
            if asked and not any(motion.excludes(mirrored(n, *which)) for motion in motions):
                found |= dict.fromkeys(asked, which)
                left -= asked
        if not left:
            break
    return found
