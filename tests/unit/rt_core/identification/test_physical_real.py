"""Consistent fits of real arms, against least squares and published figures."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy import signal

from rt_core.identification.physical.prior import blocks
from rt_core.identification.physical.recovery import complete_parameters
from rt_core.identification.rows import Rows, build_rows
from rt_core.model.base import base_parameters
from rt_core.model.inertia import is_physical
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.model.urdf import chain_from_urdf
from rt_core.model.urdf_writer import urdf_from_model
from rt_core.types import FloatArray
from rt_core.validation import torque_metrics
from tests.lab.arms.physical import fitted, is_consistent
from tests.lab.recordings.real_sets import RealSet, load_set

LWR4_URDFS = (
    "kuka_lwr4",
    "kuka_lwr4_centroepiaggio",
    *(pytest.param(name, marks=pytest.mark.soak) for name in ("kuka_lwr4_cogimon", "kuka_lwr4_gaz")),
)


def relative_error(rows: Rows, theta: FloatArray) -> float:
    return float(torque_metrics(rows.tau, rows.predict(theta), rows.use).relative_error)


def test_panda_without_any_prior(data_dir: Path) -> None:
    """First 60 % fitted, last 40 % predicted, beside the published model at the same samples."""
    folder = data_dir / "franka_panda"
    data = load_set(folder, "panda_exciting.npz", "franka_panda")
    model = data.robot.model
    base = base_parameters(model)
    rows = build_rows(model, base, data.signals, data.settings)
    first, last = data.recording.t[0], data.recording.t[-1]
    cut = first + 0.6 * (last - first)
    fit = fitted(model, base, rows.select(-np.inf, cut)).consistent()
    assert fit.prior.invented
    assert is_consistent(fit)
    assert relative_error(rows.select(cut, np.inf), fit.theta) <= 0.013
    assert 10.0 < fit.inertial[:, 0].sum() < 30.0

    published = np.load(folder / "reference_prediction_gaz2019.npz")
    late = published["t"] >= cut - first
    q, dq, ddq, tau, other = (published[k][late] for k in ("q", "dq", "ddq", "tau_meas_filtered", "tau_gaz2019"))
    own = np.array(regressor(model, base.layout, q, dq, ddq)) @ fit.theta
    rms = [np.sqrt(((tau - predicted) ** 2).mean(axis=0)) for predicted in (own, other)]
    assert (rms[0] < rms[1]).all()


@pytest.mark.parametrize("name", LWR4_URDFS)
def test_lwr4_with_each_prior(data_dir: Path, name: str) -> None:
    folder = data_dir / "kuka_lwr4"
    chain = chain_from_urdf((folder / f"{name}.urdf").read_text())
    model = RobotModel(
        name, chain.joints, tip_rotation=chain.tip_rotation, tip_translation=chain.tip_translation,
        inertial=chain.inertial, dynamics=chain.dynamics, armature=False,
    )  # fmt: skip
    base = base_parameters(model)
    one, two = (load_set(folder, f"measurements_{k}.npz", "kuka_lwr4") for k in (1, 2))
    data = fitted(model, base, build_rows(model, base, one.signals, one.settings))
    again = build_rows(model, base, two.signals, two.settings)
    fit = data.consistent()
    assert is_consistent(fit)
    assert (data.solution.theta[[base.names.index(f"fv{j}") for j in range(1, 8)]] < 0.0).any()
    assert (fit.dynamics.viscous > 0.0).all()
    assert relative_error(again, fit.theta) <= 0.025

    completed = complete_parameters(base, model, fit.theta, fit.covariance)
    assert completed.exact
    links = completed.phi[blocks(base.standard).links]
    assert all(is_physical(link) for link in links)
    back = chain_from_urdf(urdf_from_model(model, links, fit.dynamics))
    moved = RobotModel(name, back.joints, inertial=back.inertial, armature=False)
    rng = np.random.default_rng(1)
    q, dq, ddq = rng.uniform(-2.0, 2.0, (3, 50, 7))
    phi = completed.phi.copy()
    phi[base.standard.is_link] = back.inertial.ravel()
    torque = np.array(regressor(moved, base.standard, q, dq, ddq)) @ phi
    expected = np.array(regressor(model, base.layout, q, dq, ddq)) @ fit.theta
    np.testing.assert_allclose(torque, expected, atol=1e-9 * np.abs(expected).max())


def published_rows(data: RealSet) -> Rows:
    """TX40 as its source describes it: 100 Hz on position, 0.1 to 7.5 s, every 100th filtered row, moving samples."""
    model = data.robot.model
    base = base_parameters(model)
    t, q, tau = data.recording.t, data.recording.channels["q"], data.recording.channels["tau"]
    q = signal.filtfilt(*signal.butter(4, 100.0, fs=5000.0), q, axis=0)
    dq = np.gradient(q, 2e-4, axis=0)
    ddq = np.gradient(dq, 2e-4, axis=0)
    inside = (t >= 0.1) & (t <= 7.5)
    t, q, dq, ddq, tau = t[inside], q[inside], dq[inside], ddq[inside], tau[inside]
    taps = signal.firwin(2001, 20.0, fs=5000.0, window=("kaiser", 7.0))

    def decimated(x: FloatArray) -> FloatArray:
        shape = (-1, *(1 for _ in x.shape[1:]))
        return np.asarray(signal.oaconvolve(x, taps.reshape(shape), mode="same", axes=0)[::100])

    Y = decimated(np.array(regressor(model, base.layout, q, dq, ddq)))
    use = np.abs(dq[::100]) >= data.settings.min_velocity
    count = t[::100].size
    return Rows(
        t[::100], np.ascontiguousarray(Y.transpose(1, 2, 0)), q[::100], dq[::100], ddq[::100], decimated(tau), use,
        np.zeros(count, dtype=np.int64), 50.0, 20.0,
    )  # fmt: skip


@pytest.mark.soak
def test_tx40_with_coupled_wrist(data_dir: Path) -> None:
    """Friction within 2 % of the published weighted least squares, on rows made as the publication makes them.

    The publication's fv5 and fv6 include what the wrist's coupled motor adds.
    """
    folder = data_dir / "staubli_tx40"
    data = load_set(folder, "tx40.npz", "staubli_tx40")
    model = data.robot.model
    base = base_parameters(model)
    with (folder / "reference_base_parameters.csv").open() as file:
        published = {row["parameter"]: float(row["wls"]) for row in csv.DictReader(file)}
    fit = fitted(model, base, published_rows(data)).consistent()
    assert is_consistent(fit)
    theta = dict(zip(base.names, fit.theta, strict=True))
    for j in range(1, 7):
        viscous = theta[f"fv{j}"] + (theta["fvm6"] if j > 4 else 0.0)
        assert viscous == pytest.approx(published[f"fv{j}"], rel=0.02)
    for j in range(1, 6):
        assert theta[f"fc{j}"] == pytest.approx(published[f"fs{j}"], rel=0.02)


def test_tx40_solves_on_our_own_rows_at_every_weight(data_dir: Path) -> None:
    data = load_set(data_dir / "staubli_tx40", "tx40.npz", "staubli_tx40")
    model = data.robot.model
    base = base_parameters(model)
    rows = build_rows(model, base, data.signals, data.settings)
    found = fitted(model, base, rows)
    for weight in (None, 1e-3, 1.0, 1e3):
        assert is_consistent(found.consistent(link_weight=weight))
    scored = build_rows(model, base, data.signals, data.settings, slow=False)
    assert relative_error(scored, found.consistent().theta) < 0.05
    completed = complete_parameters(base, model, found.solution.theta, found.covariance)
    assert all(is_physical(link) for link in completed.phi[blocks(base.standard).links])
    assert relative_error(scored, base.theta(completed.phi)) < 0.05
