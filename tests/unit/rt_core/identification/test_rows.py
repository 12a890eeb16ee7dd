"""Rows of the regression against plain NumPy: the full regressor, filtered and decimated column by column."""

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.identification.preprocess import DataError, SignalSettings, prepare
from rt_core.identification.rows import build_rows, row_filter, standing_velocity
from rt_core.model.base import base_parameters
from rt_core.model.regressor import regressor
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, PieceSettings, SimSettings
from tests.lab.arms.simulated import random_arm

RATE = 200.0


@pytest.fixture(scope="module")
def recorded():  # type: ignore[no-untyped-def]
    model = random_arm(3, 40, coupled=True)
    arm = SimulatedArm(model, SimSettings(rate_hz=RATE), MotionSettings(candidates=1))
    data = arm.simulate(12.0)
    return model, base_parameters(model), data


@pytest.mark.parametrize(("cutoff", "rate", "threshold"), [(10.0, None, 0.0), (10.0, 10.0, 0.2), (4.0, 33.0, 0.3)])
def test_rows_equal_the_filtered_regressor(recorded, cutoff: float, rate: float | None, threshold: float) -> None:  # type: ignore[no-untyped-def]
    model, base, data = recorded
    limits = np.full(model.n, threshold)
    settings = SignalSettings(cutoff, rate, min_velocity=limits)
    signals = prepare(data.t, data.channels["q"], data.channels["tau"], settings)
    rows = build_rows(model, base, signals, settings)
    factor = max(1, round(RATE / min(settings.row_rate_hz, RATE)))
    assert rows.rate_hz == RATE / factor
    taps = row_filter(settings, RATE, factor)
    assert taps.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(taps, taps[::-1], atol=1e-9)
    piece = signals.pieces[0]
    standing = np.minimum(limits, 0.2 * model.standstill_velocity)
    np.testing.assert_allclose(standing_velocity(model, settings), standing, atol=1e-300)
    moving = (np.abs(piece.dq) >= standing).astype(float)
    Y = regressor(model, base.layout, piece.q, piece.dq, piece.ddq) * moving[:, :, None]
    half = taps.size // 2
    for k, t in enumerate(rows.t):
        at = int(np.argmin(np.abs(piece.t - t)))
        window = slice(at - half, at + half + 1)
        share = taps @ moving[window]
        use = (share > 0.5) & (np.abs(piece.dq[at]) >= limits)
        np.testing.assert_array_equal(rows.use[k], use)
        expected = np.where(use[:, None], np.tensordot(taps, Y[window], axes=1), 0.0)
        np.testing.assert_allclose(rows.Y[:, :, k], expected, atol=1e-10 * np.abs(Y).max())
        torque = np.where(use, taps @ (piece.tau * moving)[window], 0.0)
        np.testing.assert_allclose(rows.tau[k], torque, atol=1e-10 * np.abs(piece.tau).max())
    np.testing.assert_allclose(rows.predict(np.ones(len(base))), rows.Y.sum(axis=1).T, atol=1e-9)


def test_rows_stay_clear_of_both_ends_and_of_gaps(recorded) -> None:  # type: ignore[no-untyped-def]
    model, base, data = recorded
    settings = SignalSettings(10.0)
    keep = np.ones(data.t.size, dtype=bool)
    keep[1100:1200] = False
    signals = prepare(data.t[keep], data.channels["q"][keep], data.channels["tau"][keep], settings)
    rows = build_rows(model, base, signals, settings)
    half = row_filter(settings, RATE, 4).size // 2 / RATE
    assert rows.t[0] >= settings.trim
    assert rows.t[-1] <= data.t[-1] - settings.trim
    assert not ((rows.t > 1100 / RATE - half + 1e-9) & (rows.t < 1200 / RATE + half - 1e-9)).any()
    assert set(rows.piece) == {0, 1}
    inside = rows.select(4.0, 5.0)
    assert ((inside.t >= 4.0) & (inside.t < 5.0)).all()
    assert inside.Y.shape == (model.n, len(base), inside.t.size)


def test_rows_stay_clear_of_both_ends_of_every_recording_that_was_joined(recorded) -> None:  # type: ignore[no-untyped-def]
    model, base, data = recorded
    first = data.t < 6.0
    t = np.where(first, data.t, data.t + 60.0)
    spans = (t[first][[0, -1]], t[~first][[0, -1]])
    settings = SignalSettings(cutoff_hz=10.0, trim_s=0.8)

    def distance(joined: bool) -> float:
        given = [(float(a), float(b)) for a, b in spans] if joined else []
        signals = prepare(t, data.channels["q"], data.channels["tau"], settings, spans=given)
        rows = build_rows(model, base, signals, settings)
        return min(float(np.abs(rows.t - end).min()) for end in np.concatenate(spans))

    assert distance(joined=True) == pytest.approx(0.8, abs=0.02)
    assert distance(joined=False) < 0.5


def test_what_cannot_be_built_is_refused(recorded) -> None:  # type: ignore[no-untyped-def]
    model, base, data = recorded
    settings = SignalSettings(10.0, trim_s=8.0)
    signals = prepare(data.t, data.channels["q"], data.channels["tau"], settings)
    with pytest.raises(DataError, match="nothing is left of 12 s after cutting 8 s"):
        build_rows(model, base, signals, settings)
    with pytest.raises(DataError, match="min_velocity has 2 values for 3 joints"):
        build_rows(model, base, signals, SignalSettings(10.0, min_velocity=np.zeros(2)))


@pytest.mark.parametrize("measured", [True, False])
def test_a_joint_at_rest_is_told_from_one_that_passes_through_zero(measured: bool) -> None:
    """Encoders of 20 bits and the default noise of a measured velocity do not make a resting joint move."""
    model = load_robot("space6").model
    parts = (PieceSettings(duration_s=6.0), PieceSettings(kind="hold", duration_s=4.0))
    motion = MotionSettings(kind="schedule", segments=parts, candidates=1)
    data = SimulatedArm(model, SimSettings(), motion).simulate(10.0)
    settings = SignalSettings(10.0, min_velocity=model.standstill_velocity)
    signals = prepare(
        data.t, data.channels["q"], data.channels["tau"], settings, dq=data.channels["dq"] if measured else None
    )
    piece = signals.pieces[0]
    standing = np.abs(piece.dq) < standing_velocity(model, settings)
    exact = np.column_stack([np.interp(piece.t, data.t, data.dq[:, j]) for j in range(model.n)])
    rest = (piece.t > 7.5) & (piece.t < 9.5)
    assert (exact[rest] == 0.0).all()
    assert standing[rest].all()
    assert standing[(piece.t > 1.0) & (piece.t < 5.0)].mean() < 0.02
    rows = build_rows(model, base_parameters(model), signals, settings)
    assert not rows.use[rows.t > 7.6].any()


def test_what_happens_beside_a_lost_sample_has_no_influence(recorded) -> None:  # type: ignore[no-untyped-def]
    model, base, data = recorded
    settings = SignalSettings(10.0)
    seq = np.arange(data.t.size)
    keep = np.delete(seq, [500, 1200, 1201, 1202])
    tau = data.channels["tau"].copy()
    tau[[499, 501, 1199, 1203, 1204]] += 0.3 * np.abs(tau).max(axis=0)
    calm, jerked, unaware = (
        build_rows(model, base, prepare(data.t[keep], data.channels["q"][keep], x[keep], settings, seq=n), settings)
        for x, n in ((data.channels["tau"], seq[keep]), (tau, seq[keep]), (tau, None))
    )
    np.testing.assert_array_equal(jerked.Y, calm.Y)
    np.testing.assert_array_equal(jerked.tau, calm.tau)
    near = np.abs(calm.t[:, None] - data.t[[500, 1201]]).min(axis=1) < 0.05
    assert not calm.use[near].any()
    assert calm.use[~near].mean() > 0.9
    assert not np.array_equal(unaware.tau, calm.tau)  # a single step of two is not seen without the count
