"""Limits of a small arm to test with."""

from typing import Any

import numpy as np

from rt_core.safety import SafetyLimits

PERIOD_S = 0.001


def limits(n: int = 2, **changes: Any) -> SafetyLimits:
    """A turning joint and a sliding one, and so on."""
    values: dict[str, Any] = {
        "joints": tuple(f"joint_{k + 1}" for k in range(n)),
        "units": tuple("rad" if k % 2 == 0 else "m" for k in range(n)), "lower": np.linspace(-1.0, -2.0, n),
        "upper": np.linspace(1.5, 1.0, n), "velocity": np.linspace(2.0, 0.5, n),
        "acceleration": np.linspace(10.0, 3.0, n), "overspeed": np.linspace(2.4, 0.6, n),
        "effort": np.linspace(100.0, 50.0, n), "following_error": np.full(n, 0.1), "temperature": np.full(n, 80.0),
    }  # fmt: skip
    return SafetyLimits(**values | changes)
