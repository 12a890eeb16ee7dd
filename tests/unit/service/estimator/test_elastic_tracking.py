"""A stiffness that drops is followed: variable forgetting beside constant factors, as in the benchmark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.elastic_tracking import DROP, RULES, at_noise, dropping, figures_of, holds, secant_error, track
from rt_core.elastic.rows import Drive
from rt_core.online.elastic import (
    DeflectionErrors,
    ElasticEstimate,
    ElasticHistory,
    ElasticJointEstimator,
    ElasticOnlineSettings,
)
from rt_core.online.elastic.update import forgetting
from service.reports.figures.elastic import elastic_history_figure
from tests.lab.arms.harmonic_drive import J_IN, RATE, TRUTH, N


def test_variable_forgetting_is_steadier_than_fast_and_sooner_than_slow() -> None:
    rules = at_noise(1.0, 3)
    assert set(rules) == set(RULES)
    assert holds(rules) == (True, True), rules
    assert rules["variable"]["settled"] == 1.0
    # a constant factor cannot have both
    assert rules["0.999"]["steady"] < rules["0.99"]["steady"]
    assert rules["0.99"]["settling_s"] < rules["0.999"]["settling_s"]


def test_the_factor_is_the_papers_curve_of_the_relative_error() -> None:
    """Eq. 44 with its figures, over errors from noise to those of a drop."""
    history = track(dropping(1, 1.0)[0], None)
    e = history.relative_error
    told = np.isfinite(e)
    assert e[told].min() < 0.01
    assert e[told].max() > 0.15
    np.testing.assert_allclose(history.lam[told], 0.95 + 0.05 * np.exp(-4.68 * e[told] ** 2), rtol=1e-12)
    wide = np.linspace(0.0, 2.0, 50)
    curve = [forgetting(x**2, 0.05, -4.68) for x in wide]
    np.testing.assert_allclose(curve, 0.95 + 0.05 * np.exp(-4.68 * wide**2), rtol=1e-14)
    assert np.all(np.diff(curve) < 0.0)


def test_after_a_change_intervals_are_doubtful_until_what_is_older_is_forgotten() -> None:
    r, drop_s = dropping(2, 1.0)
    settings = ElasticOnlineSettings(constant=0.99)
    estimator = ElasticJointEstimator(Drive(N, J_IN), TRUTH, RATE, settings, errors=DeflectionErrors())

    def take(until_s: float, since_s: float = 0.0) -> ElasticEstimate:
        k = slice(round(since_s * RATE), round(until_s * RATE))
        estimator.take(r.t[k], r.theta_in[k], r.theta_out[k], r.motor_torque[k], r.sensor_torque[k])
        return estimator.report()

    before = take(drop_s)
    assert not before.changing
    assert {p.status for p in before.parameters} <= {"determined", "weak", "undetermined"}
    after = take(drop_s + 2.5, drop_s)
    assert after.changing
    assert {p.status for p in after.parameters} <= {"doubtful", "undetermined"}
    assert not take(drop_s + 20.0, drop_s + 2.5).changing


def test_metrics_of_a_known_course() -> None:
    r, drop_s = dropping(0, 0.0)
    d2 = float(np.mean(r.d[(r.t < drop_s) & r.steady] ** 2))
    secant = TRUTH["k1"] + TRUTH["k2"] * d2
    t = np.arange(1.0, 86.0, 0.1)
    since = t - drop_s
    course = np.where(
        since < 0.0, 1.0 + 0.01 * np.sign(np.sin(2.0 * np.pi * t / 5.0)), DROP + 0.2 * np.exp(-since / 4.0)
    )
    p = np.column_stack((course * secant - TRUTH["k2"] * d2, np.full(t.size, TRUTH["k2"])))
    known = np.ones_like(p, dtype=bool)
    history = ElasticHistory(("k1", "k2"), t, p, np.zeros_like(p), known, np.ones(t.size), np.zeros(t.size), p, p)
    found = figures_of(history, r, drop_s)
    # 0.2/0.8*exp(-t/4) falls below 5 % after 4*ln(5) s; its mean square over 20 s is 0.25^2*4/2/20
    assert found["settling_s"] == pytest.approx(4.0 * np.log(5.0), abs=0.15)
    assert found["tracking"] == pytest.approx(0.25 * np.sqrt(4.0 / 2.0 / 20.0), rel=0.03)
    assert found["steady"] == pytest.approx(0.01, rel=0.02)
    assert np.abs(secant_error(history, r, drop_s)[-1]) < 1e-3
    # right at the last load only is not settled
    late = replace(history, value=np.where((t < t[-1] - 3.0)[:, None] & (since > 0.0)[:, None], 1.2 * p, p))
    assert figures_of(late, r, drop_s)["settling_s"] == np.inf


def test_course_as_a_figure(tmp_path: Path) -> None:
    r, _ = dropping(1, 1.0)
    history = track(r, None)
    drawn = elastic_history_figure(history, TRUTH)
    assert drawn.startswith(b"\x89PNG")
    assert drawn != elastic_history_figure(history, {})
