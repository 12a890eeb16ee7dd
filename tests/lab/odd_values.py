"""Requests with values of any type and magnitude in them."""

import copy
import math
import os
import random
from typing import Any

REQUESTS = int(os.environ.get("THETAD_FUZZ", "150"))
ODD = (
    1e308, -1e308, 5e-324, 1e155, math.nan, math.inf, -0.0, 0, 1 << 63, (1 << 64) - 1, -(1 << 63), True, None, "", "1",
    "x" * 300, [], {}, [1e308] * 2000, [[0.0] * 7] * 500, [[]] * 9, [None], {"q": 1e308},
)  # fmt: skip


def changed(rng: random.Random, args: dict[str, Any]) -> dict[str, Any]:
    """The arguments with some values in them, at any depth, replaced by odd ones; of a list also all."""
    args = copy.deepcopy(args)
    for _ in range(rng.choice((0, 1, 1, 1, 2)) if args else 0):
        place: Any = args
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            deep = [key for key in keys if place[key] and isinstance(place[key], (list, dict))]
            key = rng.choice(deep if deep and rng.random() < 0.7 else keys)  # most of a trajectory is numbers
            if key not in deep or rng.random() < 0.2:
                break
            place = place[key]
        odd = rng.choice(ODD) if rng.random() < 0.5 else rng.choice((-1.0, 1.0)) * 10.0 ** rng.uniform(-320, 308)
        if isinstance(place, list) and rng.random() < 0.5:
            place[:] = [odd] * len(place)
        else:
            place[key] = odd
    return args
