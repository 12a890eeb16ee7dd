"""Whole designs: they keep every limit on a finer grid, repeat to the bit, are better than chance, or say why not."""

from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation import design as designs
from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.settings import ExcitationSettings
from rt_core.model.frames import link_poses
from rt_core.model.robot import RobotModel
from sim_backend.arm.trajectory import motor_torque
from tests.lab.arms.excitation import arm, joint, series_on, three, two

QUICK = ExcitationSettings(f0_hz=0.2, harmonics=3, particles=15, iterations=15)


def keeps_all_limits(model: RobotModel, design: designs.ExcitationDesign) -> bool:
    """Look at 20 000 samples a period, ten times as many as the design itself looks at, with code of its own."""
    s = design.settings
    t = np.linspace(0.0, 1.0 / s.f0_hz, 20_001)
    q, dq, ddq = series_on(design.series.as_dict(), t)
    lower, upper, velocity, effort = (
        np.array([getattr(one, what) for one in model.joints]) for what in ("lower", "upper", "velocity", "effort")
    )
    slack = 0.5 * (1.0 - s.position_fraction) * (upper - lower)
    kept = [q >= lower + slack, q <= upper - slack, np.abs(dq) <= s.velocity_fraction * velocity]
    acceleration = 5.0 * velocity if s.acceleration is None else np.array(s.acceleration)
    kept.append(np.abs(ddq) <= s.acceleration_fraction * acceleration)
    if model.inertial is not None:
        tau = motor_torque(model, model.inertial, q, dq, ddq)
        kept.append(np.abs(tau) <= s.effort_fraction * effort * (1.0 + 1e-3))  # between samples of the design's grid
    if s.workspace is not None:
        low, high = np.array(s.workspace).T
        tips = np.array([(link_poses(model, row)[-1] @ np.append(model.tip_translation, 1.0))[:3] for row in q[::40]])
        kept += [tips >= low - 1e-6, tips <= high + 1e-6]
    np.testing.assert_allclose(dq[[0, -1]], 0.0, atol=1e-12)
    np.testing.assert_allclose(ddq[[0, -1]], 0.0, atol=1e-11)
    return all(bool(one.all()) for one in kept)


def by_chance(designer: designs.Designer, design: designs.ExcitationDesign) -> list[float]:
    """Measures of ten random motions of the same series, each joint as large as its limits allow."""
    starts = (designer.space.series(designer._start(k)) for k in range(10))
    return [designer.judge(series, design.optimiser, design.searches[0]).value for series in starts]


@pytest.mark.parametrize("optimiser", ["tcs_pso", "ga"])
def test_every_swarm_keeps_the_limits_and_beats_chance(optimiser: designs.Optimiser) -> None:
    model = three()
    design = designs.design_excitation(model, QUICK, optimiser, seed=3)
    assert design.accepted
    assert design.worst.share >= 0.0
    assert keeps_all_limits(model, design)
    assert design.optimiser == optimiser
    (search,) = design.searches
    assert search.history.size == QUICK.iterations + 1
    assert (np.diff(search.history) <= 0.0).all()
    assert design.value < np.median(by_chance(designs.Designer(model, QUICK), design))


def test_the_same_seed_gives_the_same_bits() -> None:
    first, again, other = (designs.design_excitation(two(), QUICK, "tcs_pso", seed) for seed in (7, 7, 8))
    assert first.series.as_dict() == again.series.as_dict()
    assert first.value == again.value
    assert first.margins == again.margins
    np.testing.assert_array_equal(first.searches[0].history, again.searches[0].history)
    assert first.series.as_dict() != other.series.as_dict()


def test_the_best_of_several_starts() -> None:
    settings = replace(QUICK, iterations=8)
    together = designs.design_excitation(two(), replace(settings, starts=3), "pso_linear", seed=4)
    single = [designs.design_excitation(two(), settings, "pso_linear", seed) for seed in (4, 5, 6)]
    best = min(single, key=lambda design: design.value)
    assert together.series.as_dict() == best.series.as_dict()
    assert together.seed == best.seed
    assert [search.seed for search in together.searches] == [4, 5, 6]
    for search, one in zip(together.searches, single, strict=True):
        np.testing.assert_array_equal(search.history, one.searches[0].history)


def test_a_search_that_ends_beyond_a_limit_goes_on_with_a_steeper_penalty() -> None:
    model = two()
    settings = replace(QUICK, penalty=1e-6)  # as good as none
    seen: list[int] = []
    with pytest.raises(designs.InfeasibleError):  # the steeper one is none, either
        designs.design_excitation(model, settings, "tcs_pso", 0, lambda _, progress: seen.append(progress.iteration))
    assert seen == 2 * list(range(QUICK.iterations + 1))
    seen.clear()
    soft = replace(QUICK, penalty=1.0)
    design = designs.design_excitation(model, soft, "tcs_pso", 0, lambda _, progress: seen.append(progress.iteration))
    assert seen == 2 * list(range(QUICK.iterations + 1))
    assert keeps_all_limits(model, design)


def test_what_the_pulse_raises_ends_a_design_within_an_evaluation() -> None:
    class Enough(Exception):
        pass

    count = 0

    def pulse(_share: float, _cost: float) -> None:
        nonlocal count
        count += 1
        if count == 7:
            raise Enough

    with pytest.raises(Enough):
        designs.Designer(two(), QUICK).design("pso", 0, pulse=pulse)
    assert count == 7 < QUICK.particles


def test_an_arm_of_which_only_the_geometry_is_known() -> None:
    model = replace(two(), inertial=None, dynamics=None)
    design = designs.design_excitation(model, QUICK)
    assert design.accepted
    assert keeps_all_limits(model, design)
    assert "link parameters" in design.unchecked[0]
    assert not any(margin.quantity == "effort" for margin in design.margins)


@pytest.mark.parametrize("seed", range(4))
def test_a_hasty_search_never_passes_off_a_violation(seed: int) -> None:
    """Hardly any search, a soft penalty and tight torque: what is accepted keeps all, what is refused does not."""
    model = arm(joint("first", effort=16.0), joint("second", turned=True, along=0.3, effort=24.0))
    settings = replace(QUICK, iterations=1 + seed % 2, particles=3, penalty=1e-3)
    try:
        design = designs.design_excitation(model, settings, "pso", seed)
    except designs.InfeasibleError as error:
        design = error.design
    assert design.accepted == keeps_all_limits(model, design)


@pytest.mark.parametrize(
    ("model", "change", "what"),
    [(arm(joint("first"), joint("second", turned=True, along=0.3, effort=0.5)), {}, "joint 'second'.*effort"),
     (two(), {"workspace": ((5.0, 6.0), (-1.0, 1.0), (-1.0, 1.0))}, "tip x.*lower")],
)  # fmt: skip
def test_limits_that_nothing_keeps(model: RobotModel, change: dict[str, object], what: str) -> None:
    settings = replace(QUICK, iterations=5, starts=2, **change)  # type: ignore[arg-type]
    with pytest.raises(designs.InfeasibleError, match=what) as caught:
        designs.design_excitation(model, settings)
    assert "\n" not in str(caught.value)
    assert "best of 2 searches" in str(caught.value)
    assert not caught.value.design.accepted
    with pytest.raises(designs.InfeasibleError):
        designs.best_design([caught.value.design])


def test_calls_that_are_wrong() -> None:
    with pytest.raises(ExcitationError, match="pso, pso_linear, tcs_pso, ga, gradient"):
        designs.design_excitation(two(), QUICK, "simplex")  # type: ignore[arg-type]
    with pytest.raises(ExcitationError, match="seed"):
        designs.design_excitation(two(), QUICK, "pso", -1)
    with pytest.raises(ExcitationError, match="8 samples give 72 rows for 91 parameters"):
        designs.Designer(load_robot("arm9").model, replace(QUICK, harmonics=2, samples=8))
