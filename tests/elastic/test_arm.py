"""Torque of a whole arm with elastic joints: base parameters, recovery, and the choice against rigid joints."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import get_args

import numpy as np
import pytest

from drivers.robot_file import load_robot
from rt_core.batch.elastic.apart import difference_share, rests_on_difference, told_apart, withhold
from rt_core.batch.elastic.arm import ArmRows, Motions, elastic_base
from rt_core.batch.preprocess import DataError, SignalSettings
from rt_core.model.base import base_parameters
from rt_core.model.friction import Friction
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import Transmission
from rt_core.types import FloatArray
from service.elastic_arm import arm_rows
from tests.elastic.small_arm import arm, moved

SETTINGS = SignalSettings(cutoff_hz=20.0, rate_hz=100.0)


@cache
def rows_of(*, elastic: bool, exact: bool = False) -> tuple[ArmRows, FloatArray]:
    return arm_rows(moved(elastic=elastic, exact=exact), arm(elastic=elastic), SETTINGS, None)


def test_rotors_stand_by_themselves_and_links_keep_their_combinations() -> None:
    model = load_robot("arm7_elastic").model
    assert model.dynamics is not None
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
    kept = withhold(fit, rests, told_apart(share, [True] * 3))
    status = dict(zip(kept.base.names, kept.status, strict=True))
    for name in ("Ia1", "Izz1", "Ia2", "Izz2"):
        assert status[name] == "undetermined"
        assert kept.std[kept.base.names.index(name)] == np.inf
    assert status["Ia3"] == "determined"  # its rotor is there in the rigid model, too
    others = ~rests.any(axis=0)
    assert [s for s, o in zip(kept.status, others, strict=True) if o] == [
        s for s, o in zip(fit.status, others, strict=True) if o
    ]
    assert told_apart(np.array([0.99, 0.99, 0.9, 0.1]), [True, False, True, True]) == (
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
