"""Dropping parameters never improves a verdict: neither motion nor model become better by it."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from rt_core.identification.estimate import EstimatorOptions
from rt_core.identification.identify import Identification, Verdict, identify
from rt_core.identification.preprocess import Signals, SignalSettings, prepare
from rt_core.model.base import base_parameters
from tests.lab.arms.batch import arm, motion

MODEL = arm()
BASE = base_parameters(MODEL)
SETTINGS = SignalSettings(10.0, min_velocity=MODEL.standstill_velocity)
SEVERITY: tuple[Verdict, ...] = get_args(Verdict)


def recorded(seconds: float, noise: float, seed: int, *, turned: int | None = None, spring: float = 0.0) -> Signals:
    """Position and torque of a motion, with noise, and with something wrong where it is asked for."""
    made = motion(MODEL, seconds, 250.0, seed)
    tau = made.tau + noise * np.random.default_rng(seed).normal(size=made.tau.shape)
    tau[:, 2] += spring * np.sin(3.0 * made.q[:, 2])
    if turned is not None:
        tau[:, turned] *= -1.0
    return prepare(made.t, made.q, tau, SETTINGS)


def both(signals: Signals, method: str) -> tuple[Identification, Identification]:
    """All parameters, and the essential ones."""
    options = (EstimatorOptions(method=method, essential=essential) for essential in (False, True))  # type: ignore[arg-type]
    whole, essential = (identify(MODEL, BASE, signals, SETTINGS, given) for given in options)
    return whole, essential


@pytest.mark.parametrize("method", ["ols", "wls", "iwls"])
@pytest.mark.parametrize(
    ("recording", "expected"),
    [
        ({"seconds": 30.0, "noise": 0.3, "seed": 0}, {"ok"}),
        ({"seconds": 10.0, "noise": 7.5, "seed": 1}, {"ok", "weak_excitation"}),
        ({"seconds": 6.0, "noise": 7.5, "seed": 0}, {"ok", "weak_excitation"}),
        ({"seconds": 6.0, "noise": 7.5, "seed": 5}, {"ok", "weak_excitation"}),
        ({"seconds": 6.0, "noise": 25.0, "seed": 2}, {"doubtful", "not_explained"}),
        ({"seconds": 20.0, "noise": 1.0, "seed": 0, "turned": 0}, {"not_explained"}),
        ({"seconds": 20.0, "noise": 1.0, "seed": 1, "turned": 2}, {"not_explained"}),
        ({"seconds": 20.0, "noise": 1.0, "seed": 3, "spring": 60.0}, {"doubtful", "not_explained"}),
    ],
    ids=["rich", "poor", "short", "short again", "noisy", "base turned", "elbow turned", "spring"],
)
def test_the_verdict_is_never_better(recording: dict[str, float], expected: set[str], method: str) -> None:
    whole, essential = both(recorded(**recording), method)  # type: ignore[arg-type]
    assert whole.verdict in expected
    assert SEVERITY.index(essential.verdict) >= SEVERITY.index(whole.verdict)
    assert "dropped" not in whole.status
    open_ = [k for k, status in enumerate(whole.status) if status == "undetermined"]
    assert {essential.status[k] for k in open_} <= {"undetermined"}
    assert bool(essential.reasons) == (essential.verdict != "ok")


def test_parameters_do_drop_where_the_verdict_stays() -> None:
    """What is compared differs: a short noisy recording leaves one parameter open, and others are dropped."""
    whole, essential = both(recorded(6.0, 7.5, 0), "ols")
    assert whole.verdict == essential.verdict == "weak_excitation"
    assert essential.status.count("dropped") >= 5
    assert not np.array_equal(whole.theta, essential.theta)
