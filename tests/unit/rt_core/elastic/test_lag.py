"""Lag and zero between the two encoders."""

from __future__ import annotations

import pytest

from rt_core.elastic.identify import identify_elastic_joint
from tests.lab.arms.harmonic_drive import TRUTH, record


@pytest.mark.parametrize("lag", [-1.3e-3, 0.0, 2.9e-3])
@pytest.mark.parametrize("sensor", [True, False])
def test_lag_is_found_to_a_tenth_of_a_millisecond(lag: float, sensor: bool) -> None:
    rows = record(1, lag=lag, hold=2.0, noise=(0.01, 1.0)).rows(sensor=sensor)
    p = identify_elastic_joint([rows]).answer["lag"]
    assert p.value == pytest.approx(lag, abs=1e-4)
    assert p.lower is not None
    assert p.upper is not None
    assert p.upper - p.lower < 1.5e-4
    assert p.lower < lag < p.upper


def test_lag_that_is_ignored_looks_like_damping() -> None:
    rows = record(2, lag=2.9e-3).rows()
    ignored = identify_elastic_joint([rows], lag_s=0.0).answer
    assert ignored.fit.value("b_out") > 3.0 * TRUTH["b_out"]
    assert ignored.fit.value("b_in") < 0.7 * TRUTH["b_in"]
    given = identify_elastic_joint([rows], lag_s=2.9e-3).answer
    assert given["b_out"].value == pytest.approx(TRUTH["b_out"], rel=0.05)
    assert "lag" not in {p.name for p in given.parameters}


@pytest.mark.parametrize("gravity", [False, True])
def test_encoders_with_different_zeros(gravity: bool) -> None:
    found = identify_elastic_joint([record(3, zero=0.5, lag=1e-3, gravity=gravity).rows()]).answer
    assert found.verdict == "ok", found.reasons
    assert found["zero"].value == pytest.approx(0.5, abs=3e-6)
    assert found["k1"].value == pytest.approx(TRUTH["k1"], rel=0.01)


def test_each_recording_has_its_own_zero() -> None:
    rows = [record(seed, zero=zero, lag=1e-3).rows() for seed, zero in ((4, 0.1), (5, -0.2))]
    found = identify_elastic_joint(rows).answer
    assert found["zero_1"].value == pytest.approx(0.1, abs=2e-6)
    assert found["zero_2"].value == pytest.approx(-0.2, abs=2e-6)
    assert found["k2"].value == pytest.approx(TRUTH["k2"], rel=0.01)
