"""A recording of a motion that was repeated, averaged over its periods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from drivers.files.recordings.recording import Recording
from rt_core.identification.periods import average_periods

#: Channels that are means of the same thing in every period; a temperature, for one, is not.
_CHANNELS = ("q", "dq", "current", "tau", "q_motor", "setpoint")


def average_recording(recording: Recording, period_s: float) -> Recording:
    """Return one period of `recording`, each sample the mean over all whole periods in which the motion repeats.

    Raises
    ------
    DataError
        Samples are missing or invalid, or there are no two whole periods.
    """
    valid = None if recording.valid is None else np.asarray(recording.valid.all(axis=1))
    channels = {
        name: values if valid is None else np.where(valid[:, None], values, np.nan)
        for name, values in recording.channels.items()
        if name in _CHANNELS
    }
    position = "q" if "q" in channels else "q_motor"
    found = average_periods(recording.t, channels, period_s, position=position)
    first = recording.t_ns[found.first]
    return replace(
        recording,
        t=found.t,
        t_ns=first + np.round(found.t * 1e9).astype(np.int64),
        seq=np.arange(found.t.size, dtype=np.int64),
        channels=found.channels,
        valid=None,
    )
