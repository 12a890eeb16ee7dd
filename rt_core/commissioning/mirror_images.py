"""Several joints that are inverted in all their signals at once: mirror images of the whole arm.

A check of one joint excludes that it alone is inverted.  Together with others it may still be.  A planar arm whose zero
hangs or stands straight has an even potential; with `S = -I` then

    S g(S q) = -g(-q) = g(q),

and an upright arm whose links are symmetric about a plane tells the same with all joints inverted that turn it out of
the plane.  So each set of joints is tried, against all motions together: one joint's direction is told only if no set
that it belongs to is left.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations

from rt_core.commissioning.gravity_terms import GravityMotion, mirrored

#: Joints up to which all sets of them are tried: there are `2^n`.
_MAX = 12


def mirror_images(motions: Sequence[GravityMotion], joints: Collection[int]) -> dict[int, tuple[int, ...]]:
    """Find joints that may be inverted, whatever the checks of single joints say.

    Parameters
    ----------
    motions : sequence of GravityMotion
        Of all joints; one that the description does not explain excludes nothing.
    joints : collection of int
        Those that are asked for.

    Returns
    -------
    dict
        For each of these that is not told, the smallest set of joints with it that may be inverted together.  Of an
        arm with more than twelve joints that is all of them.
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
