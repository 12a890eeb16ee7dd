"""Made-up rows of made-up arms, for the tests of reports and figures."""

import numpy as np

from rt_core.identification.rows import Rows
from rt_core.model.robot import Joint, RobotModel


def some_model(names: tuple[str, ...]) -> RobotModel:
    """An arm whose joints have the given names."""
    return RobotModel(
        "r", tuple(Joint(name, "revolute", np.eye(3), np.zeros(3), np.array([0.0, 0.0, 1.0])) for name in names)
    )


def some_rows(n: int, count: int = 60) -> tuple[Rows, np.ndarray]:
    """Rows with gaps and a joint that is never used, and a prediction."""
    rng = np.random.default_rng(1)
    t = np.arange(count) * 0.02
    state = rng.normal(size=(count, n))
    use = rng.random((count, n)) > 0.2
    use[:, -1] = False
    piece = (np.arange(count) > count // 2).astype(np.int64)
    rows = Rows(t, np.zeros((n, 1, count)), state, state, state, state, use, piece, 50.0, 10.0)
    return rows, state + 0.1 + 0.05 * rng.normal(size=state.shape)
