"""Events and status of doubt and of frames that are of no use."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from drivers.files.robots.file import load_robot
from rt_core.online import OnlineEstimator, OnlineSettings
from service.estimator._trust import TrustEvents

RATE = 250.0


def test_each_is_told_once_when_it_comes_and_when_it_goes() -> None:
    estimator = OnlineEstimator(load_robot("emps").model, OnlineSettings(update_hz=50.0), RATE, has_dq=True)
    told: list[tuple[str, str, dict[str, Any]]] = []
    events = TrustEvents(estimator, lambda *event: told.append(event))
    rng = np.random.default_rng(0)
    for k in range(round(30.0 * RATE)):
        t = k / RATE
        wrong = 1.3 if 5.0 < t < 10.0 else 1.0
        q, dq = 0.1 * np.sin(3.0 * t), 0.3 * np.cos(3.0 * t)
        tau = -80.0 * dq + 200.0 * dq + 20.0 * np.sign(dq) - 50.0 * q + rng.standard_normal()
        tau = np.array([np.nan if 20.0 < t < 25.0 else tau])
        estimator.step(round(t * 1e9), k, np.array([q]), tau, None, np.array([wrong * dq]))
        events.check()
    kinds = [kind for kind, _, _ in told]
    assert kinds[0] == "doubted"
    assert "1.3 times" in told[0][1]
    assert told[0][2]["reasons"] == ["velocity"]
    assert "believed" in kinds
    assert (kinds.count("starved"), kinds.count("fed")) == (1, 1)
    starved = told[kinds.index("starved")]
    assert starved[2]["cause"] == "invalid"
    assert "no number" in starved[1]
    json.dumps(events.document())
