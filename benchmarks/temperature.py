"""Friction over temperature: an arm from -40 to +60 degC, with and without the temperature in its model.

One sweep is fitted, the reverse one with another motion predicted.  Beside it the same is asked of a model that has
seen 15 to 45 degC only: it has to say that it is asked beyond.
"""

from typing import Any

import numpy as np

from drivers.files.robots.file import load_robot
from rt_core.identification.identify import identify
from rt_core.identification.preprocess import Signals, SignalSettings, prepare
from rt_core.identification.rows import build_rows
from rt_core.identification.temperature import share_outside
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.validation import torque_metrics
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import AmbientSettings, MotionSettings, SimSettings

ROBOT = "space6_temperature"
COLD, HOT = -40.0, 60.0
MAX_ERROR = 0.03  # of a slope
MAX_RATIO = 1.0 / 3.0  # of the torque error with the temperature to that without, all joints stacked
_SETTINGS = SignalSettings(cutoff_hz=10.0)


def recorded(from_c: float, to_c: float, seed: int, seconds: float) -> Signals:
    """Filtered signals of the arm while the ambient temperature goes from one to the other."""
    settings = SimSettings(
        seed=seed,
        rate_hz=500.0,
        ambient_c=from_c,
        ambient=(AmbientSettings(time_s=0.95 * seconds, ambient_c=to_c),),
        thermal_time_s=3.0,
    )
    data = SimulatedArm(load_robot(ROBOT).model, settings, MotionSettings(seed=seed)).simulate(seconds)
    q, dq, tau, temperature = (data.channels[name] for name in ("q", "dq", "tau", "temperature"))
    return prepare(data.t, q, tau, _SETTINGS, dq=dq, temperature=temperature)


def temperature(seeds: int = 5, seconds: float = 120.0) -> dict[str, Any]:
    """All seeds; `problems` names what misses its target."""
    model = load_robot(ROBOT).model
    plain = model.at_reference_temperature
    base, plain_base = base_parameters(model), base_parameters(plain)
    truth = base.theta(standard_parameters(model, base.standard))
    slopes = np.flatnonzero(base.layout.follows_temperature)
    errors, ratios, joints, inside, outside = [], [], [], [], []
    for seed in range(1, seeds + 1):
        sweep, back = recorded(COLD, HOT, seed, seconds), recorded(HOT, COLD, seed + 100, seconds)
        found = identify(model, base, sweep, _SETTINGS)
        without = identify(plain, plain_base, sweep, _SETTINGS)
        errors.append(np.abs(found.theta - truth)[slopes] / np.abs(truth[slopes]))
        inside.append(np.abs(found.theta - truth)[slopes] <= 1.96 * found.std[slopes])
        left = []
        for arm, of, theta in ((model, base, found.theta), (plain, plain_base, without.theta)):
            rows = build_rows(arm, of, back, _SETTINGS, slow=False)
            left.append(torque_metrics(rows.tau, rows.predict(theta), rows.use))
        ratios.append(left[0].relative_error / left[1].relative_error)
        joints.append(left[0].rmse / left[1].rmse)
        warm = identify(model, base, recorded(15.0, 45.0, seed + 200, seconds), _SETTINGS)
        cold = build_rows(model, base, recorded(COLD, -20.0, seed + 300, 20.0), _SETTINGS, slow=False)
        assert warm.temperatures is not None
        outside.append(share_outside(warm.model, warm.temperatures, cold))
    error, ratio, share = np.array(errors), np.array(ratios), np.array(outside)
    problems = []
    if error.max() > MAX_ERROR:
        problems.append(f"temperature: a slope is off by {100 * error.max():.2g} %, at most {100 * MAX_ERROR:g} %")
    if ratio.max() > MAX_RATIO:
        problems.append(f"temperature: compensation leaves {ratio.max():.2g} of the torque error, at most a third")
    if share.min() < 1.0:
        problems.append("temperature: a prediction outside the temperatures seen passes for one within")
    return {
        "seeds": seeds,
        "slope_error": {"median": float(np.median(error)), "worst": float(error.max())},
        "slopes_in_interval": float(np.mean(inside)),
        "error_ratio": {
            "median": float(np.median(ratio)),
            "worst": float(ratio.max()),
            "worst_joint": float(np.max(joints)),
        },
        "share_outside": float(share.min()),
        "problems": problems,
    }


def run(quick: bool) -> tuple[dict[str, Any], list[str], list[str]]:
    """Section of `benchmarks/run.py`."""
    found = temperature(2, 80.0) if quick else temperature()
    slope, ratio = found["slope_error"], found["error_ratio"]
    line = (
        f"temperature, {COLD:g} to {HOT:g} degC, {found['seeds']} seeds: slopes of Coulomb friction off by "
        f"{100 * slope['median']:.2g} % (worst {100 * slope['worst']:.2g} %), "
        f"{100 * found['slopes_in_interval']:.0f} % within their 95 % intervals; torque error of the reverse sweep "
        f"{ratio['median']:.2g} of that without (worst {ratio['worst']:.2g}, of a joint {ratio['worst_joint']:.2g}); "
        "outside is told of "
        f"{100 * found['share_outside']:.0f} % of the rows"
    )
    return found, [line], list(found["problems"])
