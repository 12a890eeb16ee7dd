"""What the online estimate of an elastic joint takes of a frame: filters and updates, and the report that is told."""

import time
from typing import Any

import numpy as np

from benchmarks.elastic_tracking import FAST, plan
from rt_core.elastic.rows import Drive
from rt_core.online.elastic import ElasticJointEstimator, ElasticOnlineSettings
from tests.lab.arms.harmonic_drive import J_IN, RATE, TRUTH, N

UPDATE_HZ = 100.0
REPORT_HZ = 10.0


def elastic_frame_times(seconds: float = 60.0) -> dict[str, Any]:
    """Processor time of one joint with a torque sensor, frames handed over at the update rate as the daemon does.

    Returns the mean of a frame, and median and 99th percentile of a batch with its update and of a report [us].
    """
    motion = plan(FAST)
    estimator = ElasticJointEstimator(Drive(N, J_IN), TRUTH, RATE, ElasticOnlineSettings(update_hz=UPDATE_HZ))
    size = round(RATE / UPDATE_HZ)
    reports = round(UPDATE_HZ / REPORT_HZ)
    batches, said = [], []
    count = motion.t.size // size
    for k in range(round(seconds * UPDATE_HZ)):
        at, turn = slice(k % count * size, (k % count + 1) * size), k // count
        t = motion.t[at] + turn * count * size / RATE
        channels = (motion.theta_in[at], motion.theta_out[at], motion.motor_torque[at], motion.sensor_torque[at])
        begin = time.thread_time()
        estimator.take(t, *channels)
        batches.append(time.thread_time() - begin)
        if k % reports == 0:
            begin = time.thread_time()
            estimator.report()
            said.append(time.thread_time() - begin)
    skip = round(5.0 * UPDATE_HZ)  # compilation
    batch_us, report_us = 1e6 * np.array(batches[skip:]), 1e6 * np.array(said[skip // reports + 1 :])
    return {
        "frame_us": float(batch_us.mean()) / size,
        "batch_frames": size,
        "batch_p50_us": float(np.median(batch_us)),
        "batch_p99_us": float(np.percentile(batch_us, 99.0)),
        "report_p50_us": float(np.median(report_us)),
        "updates": estimator.report().updates,
    }
