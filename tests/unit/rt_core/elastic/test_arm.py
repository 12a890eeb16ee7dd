"""Torque of a whole arm with elastic joints: base parameters, recovery, and the choice against rigid joints."""

from copy import copy
from dataclasses import replace
from functools import cache
from typing import get_args

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.elastic.arm import ArmRows, Motions, elastic_base
from rt_core.elastic.separability import difference_share, rests_on_difference, separabilities, widened, withhold
from rt_core.identification.identify import EXPLAINED_LIMIT
from rt_core.identification.preprocess import DataError, SignalSettings
from rt_core.identification.rows import build_rows
from rt_core.model.base import base_parameters
from rt_core.model.friction import Friction
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import Transmission
from rt_core.types import FloatArray
from service.operations.elastic.arm import arm_rows
from service.operations.identify import prepare_recording
from tests.lab.arms.small_elastic import arm, moved

SETTINGS = SignalSettings(cutoff_hz=20.0, rate_hz=100.0)


@cache
def rows_of(*, elastic: bool, exact: bool = False) -> tuple[ArmRows, FloatArray]:
    return arm_rows(moved(elastic=elastic, exact=exact), arm(elastic=elastic), SETTINGS, None)


def test_rotors_stand_by_themselves_and_links_keep_their_combinations() -> None:
    model = load_robot("arm7_elastic").model
    base, rigid = elastic_base(model), base_parameters(model)
    without = base_parameters(replace(model, armature=False))
    assert [name for name in base.names if not name.startswith("Ia")] == list(without.names)
    assert {f"Ia{i}" for i in range(1, 8)} <= set(base.names)
    truth = base.theta(standard_parameters(model, base.standard))
    for name, value in zip(base.names, truth, strict=True):
        if name.startswith("Ia"):
            assert value == pytest.approx(model.dynamics.armature[int(name[2:]) - 1])
    rests = rests_on_difference(rigid, base)
    assert len(base) == len(rigid) + 2
    assert [{base.names[k] for k in np.flatnonzero(row)} for row in rests] == [
        {"Ia1", "Izz1"}, {"Ia2", "Izz2"}, set(), set(), set(), set(), set(),
    ]  # fmt: skip


def test_the_truth_explains_the_torque_of_both_motions_and_of_neither_alone() -> None:
    rows, _ = rows_of(elastic=True, exact=True)
    error = {}
    for motions in get_args(Motions):
        base, r = rows.bases[motions], rows.rows[motions]
        truth = base.theta(standard_parameters(rows.model, base.standard))
        error[motions] = np.linalg.norm((r.tau - r.predict(truth))[r.use]) / np.linalg.norm(r.tau[r.use])
    assert error["both"] < 2e-3
    assert min(error["link"], error["motor"]) > 5.0 * error["both"]


def test_elastic_joints_are_chosen_where_they_are_and_recovered() -> None:
    rows, noise = rows_of(elastic=True)
    comparison = rows.compare()
    assert {m: p.better for m, p in comparison.against.items()} == {"link": True, "motor": True}
    assert comparison.elastic, comparison.reason
    fit = rows.fit("both")
    assert difference_share(fit, noise)[1] > 0.7
    truth = fit.base.theta(standard_parameters(rows.model, fit.base.standard))
    known = np.array([status in ("determined", "weak") for status in fit.status])
    inside = np.abs(fit.solution.theta - truth) < 3.0 * fit.std
    assert known.mean() > 0.5
    assert inside[known].mean() > 0.9
    assert fit.metrics.relative_error < min(rows.fit(m).metrics.relative_error for m in comparison.against)


def test_time_between_joined_recordings_is_not_held_out() -> None:
    rows, _ = rows_of(elastic=True)
    middle = rows.rows["link"].t.size // 2
    apart = copy(rows)
    later = np.where(np.arange(2 * middle + 2) < middle, 0.0, 600.0)
    apart.rows = {motions: replace(r, t=r.t + later[: r.t.size]) for motions, r in rows.rows.items()}
    found = apart.compare()
    assert found.elastic
    assert found.held_out_s == pytest.approx(rows.compare().held_out_s, rel=0.01)


def test_rigid_joints_stay_rigid_even_where_one_encoder_is_finer() -> None:
    rows, _ = rows_of(elastic=False)  # the motors' encoders are a hundred times as fine, seen from the joint
    comparison = rows.compare()
    assert not comparison.elastic
    assert "held out" in comparison.reason


def test_noise_of_the_encoders_tells_no_rotor_from_its_link() -> None:
    rows, noise = rows_of(elastic=False)
    fit = rows.fit("both")
    share = difference_share(fit, noise)
    assert share[:2].max() < 0.3
    rests = rests_on_difference(rows.bases["link"], rows.bases["both"])
    kept = withhold(fit, rests, separabilities(share, [True] * 3))
    status = dict(zip(kept.base.names, kept.status, strict=True))
    for name in ("Ia1", "Izz1", "Ia2", "Izz2"):
        assert status[name] == "undetermined"
        assert kept.std[kept.base.names.index(name)] == np.inf
    assert status["Ia3"] == "determined"  # its rotor is there in the rigid model, too
    others = ~rests.any(axis=0)
    np.testing.assert_array_equal(np.array(kept.status)[others], np.array(fit.status)[others])
    assert separabilities(np.array([0.99, 0.99, 0.9, 0.1]), [True, False, True, True]) == (
        "told", "open", "doubtful", "open",
    )  # fmt: skip


def test_what_is_not_offered_is_refused() -> None:
    model = arm(elastic=True)
    matrix = np.diag(np.full(3, 100.0))
    matrix[2, 1] = 100.0
    coupled = replace(model, transmission=Transmission(matrix, np.zeros(3), np.ones(3)))
    with pytest.raises(DataError, match="also turn with other joints"):
        elastic_base(coupled)
    with pytest.raises(DataError, match="depends on the load"):
        elastic_base(replace(model, friction=Friction(load=True)))


@pytest.mark.parametrize("ratio", [1.0, 4.0])
def test_intervals_hold_what_noise_of_the_encoders_has_moved(ratio: float) -> None:
    """The error that noise makes of an inertia is known and to one side, `ratio` standard deviations here."""
    rows, _ = rows_of(elastic=True)
    fit = rows.fit("both")
    truth, covariance = fit.solution.theta, fit.uncertainty.covariance
    k = fit.base.names.index("Ia2")
    moved_by = covariance[:, k] / np.sqrt(covariance[k, k])  # of one standard deviation of this inertia
    seen = 1.0 - ratio * np.sqrt(covariance[k, k]) / truth[k]
    assert seen > EXPLAINED_LIMIT
    share = np.where(np.arange(3) == 1, seen, 1.0)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    rng, held = np.random.default_rng(12), []
    for _ in range(200):
        theta = truth - ratio * moved_by + root @ rng.standard_normal(truth.size)
        found = widened(replace(fit, solution=replace(fit.solution, theta=theta)), share)
        held.append(np.abs(found.solution.theta - truth) <= 1.96 * found.std)
    cover = np.mean(held, axis=0)
    affected = np.abs(moved_by) > 0.5 * np.sqrt(np.diag(covariance))
    assert affected.sum() >= 2
    assert (cover[affected] > 0.92).all()


def test_a_row_in_use_is_one_of_every_motion_where_the_velocity_was_measured() -> None:
    """Below `min_velocity` a joint has no row: where one of its velocities is, none may be fitted to nothing."""
    recording, model = moved(elastic=True), arm(elastic=True)
    q = recording.channels["q"]
    noise = 0.02 * np.random.default_rng(4).standard_normal(q.shape)
    told = replace(recording, channels={**recording.channels, "dq": np.gradient(q, recording.t, axis=0) + noise})
    rows, _ = arm_rows(told, model, replace(SETTINGS, min_velocity=np.full(3, 0.1)), None)
    both, motor = rows.rows["both"], rows.rows["motor"]
    use = both.use
    assert 0.5 < use.mean() < 0.99
    assert (both.tau == motor.tau)[use].all()
    assert (both.tau == rows.rows["link"].tau)[use].all()
    of_link = both.Y[:, rows.bases["both"].layout.is_link].any(axis=1).T
    assert of_link[use].all()


def test_rigid_joints_have_the_velocity_that_was_measured() -> None:
    recording, model = moved(elastic=True), arm(elastic=True)
    exact = np.gradient(recording.channels["q_motor"] / np.diag(model.transmission.matrix), recording.t, axis=0)  # type: ignore[union-attr]
    told = replace(recording, channels={**recording.channels, "dq": exact})
    without, _ = rows_of(elastic=True)
    rows, _ = arm_rows(told, model, SETTINGS, None)
    np.testing.assert_array_equal(rows.rows["both"].Y, without.rows["both"].Y)
    np.testing.assert_array_equal(rows.rows["motor"].Y, without.rows["motor"].Y)
    signals = prepare_recording(told, model, SETTINGS)
    theirs = build_rows(model, rows.bases["link"], signals, SETTINGS)
    use = rows.rows["link"].use
    ours = rows.rows["link"].Y.transpose(2, 0, 1)[use]
    np.testing.assert_allclose(ours, theirs.Y.transpose(2, 0, 1)[use], atol=1e-9 * np.abs(ours).max())
    assert not np.allclose(rows.rows["link"].Y, without.rows["link"].Y)
