"""Rows of an elastic joint: which samples become one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rt_core.elastic.rows import Drive, elastic_rows
from rt_core.types import FloatArray
from tests.lab.arms.harmonic_drive import J_IN, SETTINGS, N, record

APART_S = 100.0  # from the begin of one recording to that of the next


def times(trim_s: float, joined: bool) -> tuple[FloatArray, float]:
    """Times of the rows of two recordings, and how long each of them is [s]; `joined`: where they end is told."""
    r = record(None, speeds=(0.06,), loads=(300.0, 500.0), hold=2.0)
    length = float(r.t[-1])
    theta_in, theta_out, torque = (np.tile(x, 2) for x in (r.theta_in, r.theta_out, r.motor_torque))
    spans = [(begin, begin + length) for begin in (0.0, APART_S)] if joined else []
    t = np.concatenate((r.t, r.t + APART_S))
    settings = replace(SETTINGS, trim_s=trim_s)
    rows = elastic_rows(t, theta_in, theta_out, torque, Drive(N, J_IN), settings, spans=spans)
    return np.concatenate([piece.t for piece in rows.pieces]), length


@pytest.mark.parametrize("begin", [0.0, APART_S])
def test_both_ends_of_each_of_several_recordings_are_cut(begin: float) -> None:
    """All of them, not the first and the last alone: what is in the middle of the whole may be an end of one."""
    t, length = times(trim_s=1.0, joined=True)
    own = t[(t >= begin) & (t <= begin + length)] - begin
    assert 1.0 <= own.min() < 1.1
    assert length - 1.1 < own.max() <= length - 1.0


def test_a_gap_within_one_recording_is_no_end_of_it() -> None:
    t, length = times(trim_s=1.0, joined=False)
    assert 1.0 <= t.min() < 1.1
    assert length + APART_S - 1.1 < t.max() <= length + APART_S - 1.0
    assert t[t < APART_S].max() > length - 0.9
    assert t[t >= APART_S].min() < APART_S + 0.9


def test_without_a_cut_rows_begin_where_the_joint_moves() -> None:
    t, length = times(trim_s=0.0, joined=True)
    assert t.min() < 0.9
    assert length - 0.9 < t[t < APART_S].max() < length
