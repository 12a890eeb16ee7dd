"""Replay of a hand guiding session from its recording: the same samples give the same values and decisions again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from drivers.files.recordings.recording import Recording
from rt_core.hand_guiding import GuidingModel, GuidingState, ZeroForceController, ZeroForceSettings
from rt_core.types import FloatArray


@dataclass(frozen=True)
class GuidingRecord:
    """A session of zero-force control, one row per cycle; joint arrays are (N, n)."""

    t: FloatArray  # (N,) [s]
    q: FloatArray  # on the joint side, as dq and tau of the motors
    dq: FloatArray
    tau: FloatArray
    outside: FloatArray  # external torque by the model [N*m or N]
    margin: FloatArray  # its bound
    states: Sequence[GuidingState]
    force: FloatArray | None = None  # (N, 3) on the flange in the base frame [N], where it is known


class GuidingRecordError(ValueError):
    """A recording that does not hold the session."""


def record_of(
    recording: Recording, model: GuidingModel, settings: ZeroForceSettings, session: Mapping[str, Any]
) -> GuidingRecord:
    """Return a session from its first sample to its end, when the drives were switched off.

    `recording` has `q`; without `dq` or `tau` velocity is that of the controller, and torque the commanded one.
    `session` is what `service.motion._hand_guiding.HandGuiding.report` gave. Raises `GuidingRecordError` if the
    recording has no sample of it.
    """
    began_ns, stopped_ns, at_once_ns = (session[key] for key in ("began_ns", "stopped_ns", "at_once_ns"))
    indices = []
    if began_ns is not None:
        passed_ns = recording.t_ns - began_ns
        indices = np.flatnonzero((passed_ns >= 0) & (passed_ns <= 1e9 * session["t_s"])).tolist()
    if not indices or recording.t_ns[indices[0]] - began_ns > 1e9 / recording.rate_hz:
        raise GuidingRecordError(
            f"{recording.path}: does not hold the beginning of session {session['number']}: record from before it on"
        )
    controller = ZeroForceController(model, settings, 1.0 / recording.rate_hz)
    rows = np.zeros((5, len(indices), recording.n))
    states: list[GuidingState] = []
    for k, index in enumerate(indices):
        frame = recording.frame(index)
        if stopped_ns is not None and frame.t_bus_ns >= stopped_ns:
            controller.stop(at_once=at_once_ns is not None and frame.t_bus_ns >= at_once_ns)
        controller.step(frame)
        status = controller.status
        q = np.full(recording.n, np.nan) if frame.q is None else frame.q
        dq = status.velocity if frame.dq is None else frame.dq
        tau = status.torque if frame.tau is None else frame.tau
        rows[:, k] = q, dq, tau, status.residual, status.margin
        states.append(status.state)
    q, dq, tau, outside, margin = rows
    return GuidingRecord(1e-9 * (recording.t_ns[indices] - began_ns), q, dq, tau, outside, margin, states)
