"""Designs by derivatives: below published condition numbers, within every limit on a finer grid, the same each time."""

from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation._workspace_kernels import workspace_shares_at
from rt_core.excitation.design import Designer, design_excitation
from rt_core.excitation.gradient import GradientSearch
from rt_core.excitation.settings import ExcitationSettings, Objective
from rt_core.excitation.shapes import Capsule, Sphere
from rt_core.model.robot import RobotModel
from rt_core.optimise.run import SearchProgress
from rt_core.types import FloatArray
from tests.lab.arms.excitation import series_on, three, two
from tests.unit.rt_core.excitation.test_design import by_chance, keeps_all_limits

SETTINGS = ExcitationSettings(f0_hz=0.2, harmonics=3, iterations=120)
FULL = ExcitationSettings(
    columns="rigid", scaled=False, position_fraction=1.0, velocity_fraction=1.0, acceleration_fraction=1.0,
    effort_fraction=1.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "objective", "scaled"),
    [(two(), "condition", False), (two(), "e_optimal", True), (three(), "d_optimal", True)],
)
def test_limits_are_kept_and_a_swarm_is_beaten(model: RobotModel, objective: Objective, scaled: bool) -> None:
    settings = replace(SETTINGS, objective=objective, scaled=scaled, starts=2)
    design = design_excitation(model, settings, "gradient", seed=1)
    assert design.accepted
    assert keeps_all_limits(model, design)
    assert design.value < min(by_chance(Designer(model, settings), design))
    swarm = design_excitation(model, replace(settings, particles=20, iterations=20), "tcs_pso", seed=1)
    assert design.value < swarm.value


@pytest.mark.parametrize(("name", "seed"), [("arm7", 0), ("ur10", 1)])
def test_condition_number_of_the_rigid_base_regressor(name: str, seed: int) -> None:
    """Full limits, rest at both ends, SI units, columns unscaled: below 20 from every seed (RED: 75.5)."""
    model = load_robot(name).model
    design = design_excitation(model, FULL, "gradient", seed)
    assert keeps_all_limits(model, design)
    t = (np.arange(400) + 0.5) * 10.0 / 400
    states = series_on(design.series.as_dict(), t)
    excitation = Designer(model, FULL).excitation
    assert len(excitation.layout) == {"arm7": 43, "ur10": 36}[name]
    W = excitation.regressor(states).transpose(2, 0, 1).reshape(-1, len(excitation.layout))
    assert np.linalg.cond(W) == pytest.approx(design.condition_number, rel=1e-3)
    assert np.linalg.cond(W) < 20.0


def test_derivative_of_the_augmented_lagrangian() -> None:
    settings = replace(
        SETTINGS, samples=40, slow_share=0.6, regions=(Sphere((0.0, 0.0, 0.2), 0.3),),
        bodies=(Capsule("foot", -1, (0.0, 0.0, 0.0), (0.0, 0.0, 0.2), 0.1),
                Capsule("hand", 1, (0.2, 0.1, 0.0), (0.2, 0.1, 0.0), 0.2)),
    )  # fmt: skip
    designer = Designer(two(), settings)
    search = GradientSearch(designer.excitation, designer.constraints, designer.space, designer._grid, 10)
    x = 1.3 * designer._start(0)
    rng = np.random.default_rng(0)
    size = search.fused.rows * 40 + 2
    multipliers, reserve = rng.uniform(0.0, 0.02, size), rng.uniform(0.0, 0.1, size)
    for order in (2.0, 64.0):
        value, gradient, after = search.lagrangian(x, order, 3.0, multipliers, reserve)
        assert np.isfinite(value)
        assert (after >= 0.0).all()
        assert after[-2:].min() > 0.0  # of the time at low speed
        for _ in range(3):
            D = rng.normal(size=x.size)

            def along(h: float, D: FloatArray = D, order: float = order) -> float:
                return search.lagrangian(x + h * D, order, 3.0, multipliers, reserve)[0]

            h = 1e-5
            found = (8.0 * (along(h) - along(-h)) - (along(2.0 * h) - along(-2.0 * h))) / (12.0 * h)
            assert gradient @ D == pytest.approx(found, rel=1e-6)


def test_regions_bodies_and_slow_time_are_kept() -> None:
    model = two()
    free = design_excitation(model, SETTINGS, "gradient")
    settings = replace(
        SETTINGS, regions=(Sphere((0.35, 0.1, 0.35), 0.4), Sphere((0.1, 0.0, 0.0), 0.25, "outside", name="post")),
        bodies=(Capsule("wall", -1, (-0.3, -0.5, 0.0), (-0.3, 0.5, 0.6), 0.05),
                Capsule("hand", 1, (0.0, 0.0, 0.0), (0.2, 0.1, 0.0), 0.05)),
        clearance_m=0.02, slow_share=0.35,
    )  # fmt: skip
    checks = Designer(model, settings).constraints

    def left(series_dict: dict[str, object]) -> tuple[FloatArray, FloatArray]:
        q, dq, _ = series_on(series_dict, np.linspace(0.0, 5.0, 8001)[:-1])
        return -workspace_shares_at(checks.workspace, model, q).max(axis=1), (np.abs(dq) <= checks.slow_velocity).mean(
            axis=0
        )

    workspace, slow = left(free.series.as_dict())
    assert workspace.min() < -0.05
    assert slow.min() < 0.33
    design = design_excitation(model, settings, "gradient")
    assert keeps_all_limits(model, design)
    workspace, slow = left(design.series.as_dict())
    assert workspace.min() >= -1e-6
    assert slow.min() >= 0.35 - 1e-3
    assert {"tip", "post", "hand to wall"} <= {margin.where for margin in design.margins}
    assert design.unchecked == ("collisions of the links moved by first: no body covers them",)


def test_history_progress_and_cancelling() -> None:
    seen: list[SearchProgress] = []
    shares: list[float] = []
    designer = Designer(two(), SETTINGS)
    design = designer.design("gradient", 0, seen.append, lambda share, _: shares.append(share))
    (search,) = design.searches
    assert [p.iteration for p in seen] == list(range(search.history.size))
    assert [p.cost for p in seen] == search.history.tolist()
    assert (np.diff(search.history) <= 0.0).all()
    assert shares == sorted(shares)
    assert designer.costs(seen[-1].x[None])[0] == pytest.approx(seen[-1].cost)
    for last in (0, 9):
        told = iter(range(100))
        stopped = designer.design("gradient", 0, lambda _, told=told, last=last: next(told) < last)
        assert stopped.searches[0].stopped == "cancelled"
        assert next(told) == last + 1
