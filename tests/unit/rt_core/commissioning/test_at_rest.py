"""What frames at rest tell, and positions that cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.commissioning.at_rest import at_rest, position_text, set_position_text
from rt_core.commissioning.findings import CommissioningError

NAMES = ["shoulder", "elbow", "wrist"]
ALLOWED = np.full(3, 0.05)


def test_rate_noise_and_lost_cycles() -> None:
    rng = np.random.default_rng(1)
    seq = np.delete(np.arange(2000), [700, 701])
    t = seq / 500.0
    q = np.array([0.3, -0.2]) + 1e-5 * rng.normal(size=(1998, 2))
    tau = np.linspace(0.0, 3.0, 1998)[:, None] + np.array([0.5, 0.1]) * rng.normal(size=(1998, 2))
    tau[:, 1] = np.nan
    found = at_rest(t, seq, {"q": q, "tau": tau})
    assert found.rate_hz == pytest.approx(500.0)
    assert found.lost == 2
    np.testing.assert_allclose(found.mean["q"], [0.3, -0.2], atol=1e-5)
    assert found.noise["tau"][0] == pytest.approx(0.5, rel=0.05)  # of a torque that drifts by six times as much
    assert np.isnan(found.mean["tau"][1])
    assert (found.moved < 1e-4).all()


def test_frames_that_tell_nothing_are_refused() -> None:
    t, q = np.arange(100) / 500.0, np.zeros((100, 2))
    with pytest.raises(CommissioningError, match="5 frames"):
        at_rest(t[:5], np.arange(5), {"q": q[:5]})
    with pytest.raises(CommissioningError, match="do not grow"):
        at_rest(np.zeros(100), np.arange(100), {"q": q})
    with pytest.raises(CommissioningError, match="joint number 2"):
        at_rest(t, np.arange(100), {"q": np.where([True, False], q, np.nan)})


@pytest.mark.parametrize(
    ("here", "turns", "words"),
    [
        (0.5, True, ""),
        (-2.0 + 1e-4, True, ""),
        (45.0, True, "degrees"),
        (5000.0, True, "motor"),
        (-2.5, True, "other sign"),
        (3.1, True, "check unit, sign and zero"),
        (2000.0, False, "millimetres"),
    ],
)
def test_a_position_outside_its_limits(here: float, turns: bool, words: str) -> None:
    lower, upper = (-2.0, 3.0) if turns else (0.0, 3.0)
    text = position_text(here, lower, upper, turns=turns)
    assert bool(text) == bool(words)
    assert words in text


@pytest.mark.parametrize(
    ("q", "words"),
    [
        ([0.4, -0.7, 1.1], ""),
        ([0.4, 0.7, 1.1], "elbow is measured at 0.7 while its drive holds -0.7: the sign"),
        ([0.4 * 57.29578, -0.7, 1.1], "degrees for radians"),
        ([1.1, -0.7, 0.4], "swapped"),
        ([0.4, -0.3, 1.1], "check sign, unit, zero"),
    ],
)
def test_positions_that_do_not_agree_with_what_drives_hold(q: list[float], words: str) -> None:
    text = set_position_text(np.array(q), np.array([0.4, -0.7, 1.1]), NAMES, ALLOWED)
    assert bool(text) == bool(words)
    assert words in text
