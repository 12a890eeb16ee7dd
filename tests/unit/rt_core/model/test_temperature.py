"""Columns that follow temperature: against the law as written, and what they need."""

from __future__ import annotations

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation.design import Designer
from rt_core.excitation.settings import ExcitationSettings
from rt_core.model.friction import Friction
from rt_core.model.parameters import standard_layout, standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.temperature import TemperatureRange
from sim_backend.arm.settings import MotionSettings
from sim_backend.arm.trajectory import plan_motion
from tests.lab.arms.warm import warm_arm


@pytest.mark.parametrize("coupled", [False, True], ids=["", "coupled"])
@pytest.mark.parametrize("law", ["coulomb_viscous", "stribeck"])
def test_columns_times_values_are_the_law_as_written(law: str, coupled: bool) -> None:
    short = {"quadratic": "none", "cubic": False} if law == "stribeck" else {}
    model = warm_arm(Friction(law, temperature="coulomb_viscous", **short), coupled=coupled)  # type: ignore[arg-type]
    d = model.dynamics
    rng = np.random.default_rng(2)
    q, v, ddq = rng.normal(size=(3, 50, 3))
    v *= 0.1
    T = rng.uniform(-40.0, 60.0, (50, 3))
    w = v @ model.coupling.T  # where friction acts
    fc = d.coulomb + d.coulomb_temperature * (T - 20.0)
    kv = d.viscous + d.viscous_temperature * (T - 20.0)
    level = fc
    if law == "stribeck":
        fb = d.breakaway + d.breakaway_temperature * (T - 20.0)
        level = fc + (fb - fc) * np.exp(-((w / d.stribeck_velocity) ** 2))
    expected = (level * np.sign(w) + kv * w) @ model.coupling
    layout = standard_layout(model)
    own = np.array([c for c, name in enumerate(layout.names) if name.startswith(("fc", "fb", "fv", "kv", "alpha"))])
    Y = regressor(model, layout, q, v, ddq, temperature=T)[:, :, own]
    np.testing.assert_allclose(Y @ standard_parameters(model, layout)[own], expected, atol=1e-12)


def test_a_temperature_that_is_missing_or_of_another_shape_is_refused() -> None:
    model = warm_arm(Friction("coulomb_viscous", temperature="coulomb"))
    layout = standard_layout(model)
    states = np.random.default_rng(0).normal(size=(3, 20, 3))
    with pytest.raises(ValueError, match="needs the temperature of each joint"):
        regressor(model, layout, *states)
    with pytest.raises(ValueError, match="temperature has shape"):
        regressor(model, layout, *states, temperature=np.zeros((20, 2)))
    plain = model.at_reference_temperature
    at_20 = regressor(model, layout, *states, temperature=np.full((20, 3), 20.0))
    same = [c for c, name in enumerate(layout.names) if not name.startswith("alpha")]
    np.testing.assert_array_equal(at_20[:, :, same], regressor(plain, standard_layout(plain), *states))


def test_a_range_ends_where_nothing_was_seen() -> None:
    seen = TemperatureRange(np.array([10.0, 20.0, np.nan]), np.array([40.0, 22.0, np.nan]))
    assert seen.narrow.tolist() == [False, True, True]
    assert seen.outside(np.array([10.0, 22.0, 20.0])).tolist() == [False, False, True]
    assert seen.outside(np.array([8.5, 23.5, 20.0])).tolist() == [True, True, True]
    assert seen.outside(np.array([9.5, np.nan, 20.0])).tolist() == [False, True, True]
    again = TemperatureRange.from_plain(seen.plain, 3)
    np.testing.assert_array_equal(again.lower, seen.lower)
    with pytest.raises(ValueError, match="2 joints"):
        TemperatureRange.from_plain(seen.plain, 2)


WARM, PLAIN = load_robot("space6_temperature").model, load_robot("space6").model


def test_a_motion_is_designed_for_the_parameters_that_motion_shows() -> None:
    settings = ExcitationSettings(f0_hz=0.1, harmonics=3)
    warm, plain = (Designer(model, settings) for model in (WARM, PLAIN))
    assert warm.excitation.layout.names == plain.excitation.layout.names
    x = 0.3 * np.random.default_rng(0).uniform(warm.space.lower, warm.space.upper)
    found, expected = (one.fused.evaluate(one.space.stacked(x)) for one in (warm, plain))
    assert found == pytest.approx(expected)


def test_the_same_seed_plans_the_same_motion() -> None:
    one, other = (plan_motion(model, MotionSettings(seed=3, candidates=3)) for model in (WARM, PLAIN))
    np.testing.assert_array_equal(one.coefficients, other.coefficients)
