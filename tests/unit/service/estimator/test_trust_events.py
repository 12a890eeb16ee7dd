"""Events and status of doubt and of frames that are of no use."""

import json
from itertools import pairwise
from typing import Any

import numpy as np

from drivers.files.robots.file import load_robot
from drivers.frame import JointFrame
from rt_core.online import OnlineEstimator, OnlineSettings
from service.estimator._rigid_estimate import Inputs
from service.estimator._trust import TrustEvents

RATE = 250.0


def test_each_is_told_once_when_it_comes_and_when_it_goes() -> None:
    estimator = OnlineEstimator(load_robot("emps").model, OnlineSettings(update_hz=50.0), RATE, has_dq=True)
    inputs = Inputs(estimator.model, has_dq=True)
    told: list[tuple[str, str, dict[str, Any]]] = []
    events = TrustEvents(estimator, lambda *event: told.append(event))
    rng = np.random.default_rng(0)
    for k in range(round(30.0 * RATE)):
        t = k / RATE
        wrong = 1.3 if 5.0 < t < 10.0 else 1.0
        q, dq = 0.1 * np.sin(3.0 * t), 0.3 * np.cos(3.0 * t)
        tau = np.array([-80.0 * dq + 200.0 * dq + 20.0 * np.sign(dq) - 50.0 * q + rng.standard_normal()])
        lacks = 20.0 < t < 25.0
        frame = JointFrame(k, round(t * 1e9), 0, np.array([q]), np.array([wrong * dq]), tau=None if lacks else tau)
        for block in inputs.blocks([frame]):
            estimator.take(block.t_ns, block.seq, block.q, block.tau, block.joints_valid, block.dq)
        events.check(round(t * 1e9))
    kinds = [kind for kind, _, _ in told]
    assert kinds[0] == "doubted"
    assert "1.3 times" in told[0][1]
    assert told[0][2]["reasons"] == ["velocity"]
    assert "believed" in kinds
    assert (kinds.count("starved"), kinds.count("fed")) == (1, 1)
    starved = told[kinds.index("starved")]
    assert starved[2]["cause"] == "invalid"
    assert "lack a channel" in starved[1]
    assert [kind for kind, text, _ in told if "passed all tests" in text] == ["believed"]
    json.dumps(events.document(0))


def test_another_estimate_has_not_passed_and_doubts_of_a_saved_one_are_not_told_again() -> None:
    told: list[tuple[str, str, dict[str, Any]]] = []

    def run(estimator: OnlineEstimator, start_s: float, stop_s: float, sign: float = -1.0) -> TrustEvents:
        events = TrustEvents(estimator, lambda *event: told.append(event))
        for k in range(round(start_s * RATE), round(stop_s * RATE)):
            t = k / RATE
            q, dq = 0.1 * np.sin(3.0 * t), 0.3 * np.cos(3.0 * t)
            tau = -250.0 * q + sign * 20.0 * np.sign(dq) + rng.standard_normal()
            estimator.step(round(t * 1e9), k, np.array([q]), np.array([tau]))
            events.check(round(t * 1e9))
        return events

    rng = np.random.default_rng(0)
    model, settings = load_robot("emps").model, OnlineSettings(update_hz=50.0)
    estimator = OnlineEstimator(model, settings, RATE)
    run(estimator, 0.0, 45.0, 1.0)
    assert told == []
    run(estimator, 45.0, 65.0)
    reasons = [data["reasons"] for kind, _, data in told if kind == "doubted"]
    assert "noise" in reasons[0]
    assert "signs" in reasons[-1]
    assert all(a != b for a, b in pairwise(reasons))
    saved, count = estimator.state(), len(told)
    other = OnlineEstimator(model, settings, RATE)
    other.restore(saved)
    events = run(other, 65.0, 66.0)
    assert len(told) == count
    assert events.document(round(70e9))["trust"]["since_s"] > 3.0
    other.reset()
    events.check(round(70e9))
    assert told[-1][0] == "believed"
    assert "not tested" in told[-1][1]
