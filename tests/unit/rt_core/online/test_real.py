"""Real recordings: what the online estimate predicts of the part it has not seen, beside batch WLS on the same part."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rt_core.identification.identify import identify
from rt_core.identification.rows import build_rows
from rt_core.model.base import base_parameters
from rt_core.online import OnlineEstimator, OnlineSettings
from rt_core.validation import torque_metrics
from tests.lab.recordings.real_sets import load_set


def test_online_predicts_the_rest_almost_as_well_as_batch(data_dir: Path) -> None:
    loaded = load_set(data_dir, "franka_panda/panda_exciting.npz", "franka_panda")
    model, signals, settings, recording = loaded.robot.model, loaded.signals, loaded.settings, loaded.recording
    split = 0.6 * float(recording.t[-1])
    base = base_parameters(model)
    batch = identify(model, base, signals, settings, stop_s=split)
    online = OnlineSettings(
        cutoff_hz=settings.cutoff_hz,
        min_velocity=None if settings.min_velocity is None else tuple(settings.min_velocity),
    )
    channels = recording.channels
    dq = channels.get("dq")
    estimator = OnlineEstimator(model, online, signals.rate_hz, has_dq=dq is not None, base=base)
    for k in np.flatnonzero(recording.t < split):
        measured = None if dq is None else dq[k]
        estimator.step(int(recording.t_ns[k]), int(k), channels["q"][k], channels["tau"][k], None, measured)
    rows = build_rows(model, base, signals, settings).select(split, np.inf)
    errors = [
        torque_metrics(rows.tau, rows.predict(theta), rows.use).relative_error
        for theta in (estimator.theta, batch.theta)
    ]
    assert errors[0] <= 1.15 * errors[1], f"online {100 * errors[0]:.2f} %, batch {100 * errors[1]:.2f} %"
