"""Columns that follow temperature, and what is said of a use outside the ranges of an identification."""

from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation.design import Designer
from rt_core.excitation.settings import ExcitationSettings
from rt_core.model.friction import Friction
from rt_core.model.parameters import standard_layout, standard_parameters
from rt_core.model.ranges import IdentifiedRanges, checked_speeds, extent
from rt_core.model.regressor import regressor
from rt_core.model.temperature import TemperatureRange
from sim_backend.arm.settings import MotionSettings
from sim_backend.arm.trajectory import plan_motion
from tests.lab.arms.simulated import random_arm
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
    np.testing.assert_array_equal(TemperatureRange.from_plain(seen.plain, 3).lower, seen.lower)
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


def test_extent_leaves_out_the_largest_few_and_what_is_not_used() -> None:
    values = np.stack((np.linspace(-1.0, 1.0, 4001), np.full(4001, 2.0), np.full(4001, np.nan)), axis=1)
    values[7] = 1e3  # one spike
    use = np.ones(values.shape, dtype=bool)
    use[:, 1] = False
    np.testing.assert_allclose(extent(values, use), [0.995, 0.0, 1e3], atol=1e-3)


def test_notes() -> None:
    model = random_arm(3, 1, prismatic=0.0)
    seen = IdentifiedRanges(
        np.array([1.0, 1.0, 0.0]), np.array([10.0, 10.0, 10.0]), np.array([20.0, 20.0, np.nan]), np.full(3, 30.0)
    )
    within = IdentifiedRanges(np.array([1.1, 0.5, 9.0]), np.array([11.0, 5.0, 0.0]), np.full(3, 16.0), np.full(3, 34.0))
    (held,) = seen.notes(model, within)
    assert held.startswith(f"joint {model.joints[2].name} moves at up to 9 rad/s, and did not move where")
    rest = replace(within, speed=np.array([1.1, 0.5, 0.1 * model.standstill_velocity[2]]))
    assert seen.notes(model, rest) == ()  # the noise of a joint at rest
    (loaded,) = replace(seen, load=np.array([10.0, 10.0, 0.0])).notes(model, replace(rest, load=np.full(3, 2.0)))
    assert loaded.startswith(f"joint {model.joints[2].name} carries 2 N*m, and was identified without any load")
    beyond = IdentifiedRanges(np.array([2.0, 0.5, 0.0]), np.array([1.0, 15.0, 0.0]), np.full(3, 25.0), np.full(3, 41.0))
    fast, heavy, *warm = seen.notes(model, beyond)
    names = [joint.name for joint in model.joints]
    assert fast.startswith(f"joint {names[0]} moves 2.0 x faster than where its friction was identified (2 against 1 ")
    assert heavy.startswith(f"joint {names[1]} carries 1.5 x the load that it was identified with")
    assert [text.split(" is at ")[0] for text in warm] == [f"joint {name}" for name in names[:2]]
    assert seen.plain["lower_c"] == [20.0, 20.0, None]


def test_speeds_of_a_request_are_checked() -> None:
    assert checked_speeds(None, 2) is None
    np.testing.assert_array_equal(checked_speeds([1, 2.0], 2), [1.0, 2.0])
    for wrong in ([1.0], [1.0, -1.0], [1.0, None]):
        with pytest.raises(ValueError, match="speeds: expected 2"):
            checked_speeds(wrong, 2)
