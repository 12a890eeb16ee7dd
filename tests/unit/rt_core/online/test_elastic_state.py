"""A saved state of the online estimate of an elastic joint: goes on where it was, or is refused as a whole."""

from typing import Any

import numpy as np
import pytest

from rt_core.elastic.rows import Drive
from rt_core.online._state import padded
from rt_core.online.elastic import Deflection, DeflectionErrors, ElasticJointEstimator, ElasticOnlineSettings
from tests.lab.arms.harmonic_drive import J_IN, RATE, TRUTH, N, Recorded
from tests.lab.arms.online_joint import take, twice


def make(**changes: Any) -> ElasticJointEstimator:
    given: dict[str, Any] = {"start": TRUTH, "deflection": Deflection(errors=DeflectionErrors())}
    return ElasticJointEstimator(**({"drive": Drive(N, J_IN), "rate_hz": RATE} | given | changes))


@pytest.fixture(scope="module")
def moved() -> Recorded:
    return twice(31)


def test_it_goes_on_as_after_a_gap(moved: Recorded) -> None:
    one, other = make(), make()
    half = moved.t.size // 2
    take(one, moved, slice(0, half))
    other.restore(one.state())
    before, after = one.report(), other.report()
    assert after.parameters == before.parameters
    assert (after.valid, after.lam, after.t_s) == (before.valid, before.lam, before.t_s)
    assert (after.frames, after.updates) == (before.frames, before.updates)
    np.testing.assert_array_equal(other.information_root, one.information_root)
    one.restart_stream()
    for estimator in (one, other):
        take(estimator, moved, slice(half, moved.t.size))
    np.testing.assert_array_equal(other.theta, one.theta)
    np.testing.assert_array_equal(other.std, one.std)
    assert other.report().parameters == one.report().parameters
    assert other.report().updates > 1.9 * before.updates


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "state format 2"),
        ({"hash": "another"}, "another start, drive or settings"),
        ({"theta": None}, "lacks theta"),
        ({"theta": np.zeros(4)}, "another size"),
        ({"learned": np.zeros(3)}, "another size: learned"),
        ({"power": np.full(6, np.nan)}, "not finite in power"),
        ({"counted": np.full(6, -1)}, "negative counts"),
        ({"R": np.zeros((6, padded(6)))}, "singular"),
    ],
)
def test_what_cannot_serve_is_refused_and_changes_nothing(moved: Recorded, changes: dict[str, Any], words: str) -> None:
    one, other = make(), make()
    take(one, moved, slice(0, 4000))
    take(other, moved, slice(0, 2000))
    before = other.report(), other.theta
    with pytest.raises(ValueError, match=words):
        other.restore(one.state() | changes)
    assert other.report().parameters == before[0].parameters
    np.testing.assert_array_equal(other.theta, before[1])


@pytest.mark.parametrize(
    "changes",
    [
        {"drive": Drive(N)}, {"start": TRUTH | {"k1": 4e5}}, {"rate_hz": 250.0},
        {"settings": ElasticOnlineSettings(constant=0.99)}, {"deflection": Deflection(1e-3, 0.0, DeflectionErrors())},
        {"deflection": Deflection(0.0, 0.1, DeflectionErrors())}, {"deflection": Deflection()},
    ],
)  # fmt: skip
def test_a_state_is_of_one_start_only(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="another start, drive or settings"):
        make(**changes).restore(make().state())
