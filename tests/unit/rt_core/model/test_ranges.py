"""Ranges that a model was identified in, and what is said of a use outside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rt_core.model.ranges import IdentifiedRanges, checked_speeds, extent
from tests.lab.arms.simulated import random_arm


def test_extent_leaves_out_the_largest_few_and_what_is_not_used() -> None:
    values = np.stack((np.linspace(-1.0, 1.0, 4001), np.full(4001, 2.0), np.full(4001, np.nan)), axis=1)
    values[7] = 1e3  # one spike
    use = np.ones(values.shape, dtype=bool)
    use[:, 1] = False
    np.testing.assert_allclose(extent(values, use), [0.995, 0.0, 1e3], atol=1e-3)


def test_notes() -> None:
    model = random_arm(3, 1, prismatic=0.0)
    seen = IdentifiedRanges(
        np.array([1.0, 1.0, 0.0]), np.array([10.0, 10.0, 10.0]), np.array([20.0, 20.0, np.nan]), np.full(3, 30.0)
    )
    within = IdentifiedRanges(np.array([1.1, 0.5, 9.0]), np.array([11.0, 5.0, 0.0]), np.full(3, 16.0), np.full(3, 34.0))
    (held,) = seen.notes(model, within)
    assert held.startswith(f"joint {model.joints[2].name} moves at up to 9 rad/s, and did not move where")
    rest = replace(within, speed=np.array([1.1, 0.5, 0.1 * model.standstill_velocity[2]]))
    assert seen.notes(model, rest) == ()  # the noise of a joint at rest
    (loaded,) = replace(seen, load=np.array([10.0, 10.0, 0.0])).notes(model, replace(rest, load=np.full(3, 2.0)))
    assert loaded.startswith(f"joint {model.joints[2].name} carries 2 N*m, and was identified without any load")
    beyond = IdentifiedRanges(np.array([2.0, 0.5, 0.0]), np.array([1.0, 15.0, 0.0]), np.full(3, 25.0), np.full(3, 41.0))
    fast, heavy, *warm = seen.notes(model, beyond)
    names = [joint.name for joint in model.joints]
    assert fast.startswith(f"joint {names[0]} moves 2.0 x faster than where its friction was identified (2 against 1 ")
    assert heavy.startswith(f"joint {names[1]} carries 1.5 x the load that it was identified with")
    assert [text.split(" is at ")[0] for text in warm] == [f"joint {name}" for name in names[:2]]
    assert seen.plain["lower_c"] == [20.0, 20.0, None]


def test_speeds_of_a_request_are_checked() -> None:
    assert checked_speeds(None, 2) is None
    np.testing.assert_array_equal(checked_speeds([1, 2.0], 2), [1.0, 2.0])
    for wrong in ([1.0], [1.0, -1.0], [1.0, None]):
        with pytest.raises(ValueError, match="speeds: expected 2"):
            checked_speeds(wrong, 2)
