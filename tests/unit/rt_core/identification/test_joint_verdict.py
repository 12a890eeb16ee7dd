"""The verdict on each joint, from made-up statuses and from recordings with something wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.identification.identify import Identification, identify
from rt_core.identification.joint_verdict import JointVerdict, joint_verdicts
from rt_core.identification.preprocess import SignalSettings, prepare
from rt_core.model.base import base_parameters
from rt_core.validation import Metrics
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.arms.batch import arm

BASE = base_parameters(arm())


def metrics(explained: float = 0.99, count: int = 100) -> Metrics:
    plain = np.full(3, 0.1)
    shares = np.array([0.99, explained, 0.99])
    return Metrics(0.05, plain, plain, plain, np.sqrt(np.abs(shares)), shares, np.array([100.0, count, 100.0]))


def of_joint_2(counts: dict[str, int], found: Metrics, **options: object) -> JointVerdict:
    """Verdict on the second joint, with the given numbers of each status there and all else determined."""
    mine = np.flatnonzero(BASE.layout.joint == 1)
    status = ["determined"] * len(BASE)
    words = [word for word, number in counts.items() for _ in range(number)]
    for k, word in zip(mine, words, strict=False):
        status[k] = word
    verdicts = joint_verdicts(BASE.layout, status, found, **options)  # type: ignore[arg-type]
    if options.get("accepted", True):
        assert verdicts[0].word == verdicts[2].word == "well determined"
    return verdicts[1]


@pytest.mark.parametrize(
    ("counts", "found", "options", "word", "reason"),
    [
        ({}, metrics(), {}, "well determined", "all"),
        ({"weak": 3}, metrics(), {}, "well determined", "3 of"),
        ({"weak": 8}, metrics(), {}, "weak", "too small"),
        ({"undetermined": 1}, metrics(), {}, "weak", "does not determine fv2"),
        ({"undetermined": 9}, metrics(), {}, "undetermined", "and 6 more"),
        ({"undetermined": 1, "weak": 20}, metrics(), {}, "undetermined", "does not determine"),
        ({"prior": 2}, metrics(), {}, "weak", "prior stands in"),
        ({"dropped": 2, "weak": 1}, metrics(), {}, "well determined", "3 of"),
        ({"doubtful": 5}, metrics(), {}, "weak", "doubtful"),
        ({}, metrics(0.7), {}, "weak", "70 %"),
        ({}, metrics(0.2), {}, "not explained", "20 %"),
        ({}, metrics(-3.0), {}, "not explained", "0 %"),
        ({}, metrics(np.nan), {}, "not explained", "constant"),
        ({}, metrics(np.nan, 0), {}, "not explained", "no rows"),
        ({}, metrics(), {"accepted": False}, "undetermined", "rejected"),
        ({}, metrics(), {"accepted": False, "negative_coulomb": (1,)}, "not explained", "negative"),
    ],
)
def test_word_and_reason(
    counts: dict[str, int], found: Metrics, options: dict[str, object], word: str, reason: str
) -> None:
    verdict = of_joint_2(counts, found, **options)
    assert verdict.word == word
    assert reason in verdict.reason


def test_counts_sum_to_the_parameters_of_the_joint() -> None:
    verdict = of_joint_2({"undetermined": 2, "weak": 3, "doubtful": 1}, metrics())
    total = int((BASE.layout.joint == 1).sum())
    assert verdict.counts == {"undetermined": 2, "weak": 3, "doubtful": 1, "determined": total - 6}


def fitted(change: Callable[[np.ndarray], None] = lambda tau: None, **motion: object) -> Identification:
    model = load_robot("space6").model
    settings = MotionSettings(seed=3, candidates=2, **motion)  # type: ignore[arg-type]
    data = SimulatedArm(model, SimSettings(rate_hz=250.0), settings, seed=3).simulate(20.0)
    tau = data.channels["tau"].copy()
    change(tau)
    signals = prepare(data.t, data.channels["q"], tau, SignalSettings(10.0))
    return identify(model, base_parameters(model), signals, SignalSettings(10.0, min_velocity=np.full(6, 0.01)))


def words(fit: Identification) -> list[str]:
    found = joint_verdicts(
        fit.base.layout,
        fit.status,
        fit.metrics,
        accepted=fit.verdict != "not_explained",
        negative_coulomb=fit.plausibility.negative_coulomb,
    )
    return [verdict.word for verdict in found]


def test_a_good_recording() -> None:
    assert words(fitted()) == ["well determined"] * 6


def test_a_dead_torque_channel() -> None:
    def kill(tau: np.ndarray) -> None:
        tau[:, 3] = 0.0

    found = words(fitted(kill))
    assert found[3] == "not explained"
    assert "well determined" not in found


def test_a_turned_torque_channel() -> None:
    def turn(tau: np.ndarray) -> None:
        tau[:, 4] *= -1.0

    fit = fitted(turn)
    assert fit.verdict == "not_explained"
    found = words(fit)
    assert found[4] == "not explained"
    assert "well determined" not in found


def test_status_of_a_doubtful_fit_is_never_well_determined() -> None:
    fit = fitted()
    doubtful = replace(fit, status=tuple("doubtful" if s == "determined" else s for s in fit.status))
    assert set(words(doubtful)) == {"weak"}
