"""Lag and zero between the two encoders."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.elastic.common_lag import Lag, common_lag, deflection_lag
from rt_core.elastic.identify import identify_elastic_joint
from rt_core.identification.preprocess import DataError
from tests.lab.arms.harmonic_drive import J_IN, TRUTH, N, measured, record


@pytest.mark.parametrize(("lag", "sensor"), [(-1.3e-3, True), (2.9e-3, False)])
def test_lag_is_found_to_a_tenth_of_a_millisecond(lag: float, sensor: bool) -> None:
    rows = record(1, lag=lag, hold=2.0, noise=(0.01, 1.0)).rows(sensor=sensor)
    p = identify_elastic_joint([rows]).answer["lag"]
    assert p.value == pytest.approx(lag, abs=1e-4)
    assert p.upper - p.lower < 1.5e-4
    assert p.lower < lag < p.upper


def test_each_recording_has_its_own_zero() -> None:
    rows = [record(seed, zero=zero, lag=1e-3).rows() for seed, zero in ((4, 0.1), (5, -0.2))]
    found = identify_elastic_joint(rows).answer
    assert found["zero_1"].value == pytest.approx(0.1, abs=2e-6)
    assert found["zero_2"].value == pytest.approx(-0.2, abs=2e-6)
    assert found["k2"].value == pytest.approx(TRUTH["k2"], rel=0.01)


TRUE = 1.5e-3


def test_a_joint_tells_its_encoders_lag_less_its_own_viscous_friction() -> None:
    apparent = []
    for seed in range(3):
        r = measured(record(None, lag=TRUE, k2=0.0), seed)
        found = deflection_lag([r.rows(sensor=False, inertia=J_IN)] * 2, cubic=False)
        assert found.std < 0.1e-3
        apparent.append(found.value)
    np.testing.assert_allclose(apparent, TRUE - N**2 * TRUTH["b_in"] / TRUTH["k1"], atol=0.15e-3)


def test_a_joint_at_one_speed_without_change_tells_none() -> None:
    rows = record(None, speeds=(0.04,), loads=(100.0,), directions=(1,)).rows(sensor=False)
    with pytest.raises(DataError, match=r"do not tell a lag|no deflection"):
        deflection_lag([rows], cubic=False)


def test_the_interval_holds_the_mean_of_joints_that_differ() -> None:
    rng = np.random.default_rng(7)
    held, narrow = [], []
    for _ in range(400):
        std = rng.uniform(0.02e-3, 0.1e-3, 6)
        values = TRUE + rng.normal(0.0, 0.1e-3, 6) + rng.normal(0.0, std)
        found = common_lag([Lag(v, s) for v, s in zip(values, std, strict=True)])
        held.append(found.lower < TRUE < found.upper)
        narrow.append(found.std)
    assert 0.92 < np.mean(held) < 0.985
    assert np.mean(narrow) < 0.08e-3


def test_joints_that_agree_differ_by_nothing_and_one_alone_has_no_mean() -> None:
    assert common_lag([Lag(TRUE, 1e-5)]) is None
    found = common_lag([Lag(TRUE, 1e-5)] * 3)
    assert found.value == pytest.approx(TRUE)
    assert found.between == 0.0
    assert found.std == pytest.approx(1e-5 / np.sqrt(3.0))
