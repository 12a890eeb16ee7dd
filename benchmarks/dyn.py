"""Torque fit of Jing et al. 2025 (Actuators 14, 497): six joints, their Table 1 as truth, noise of their error.

The torque noise has 0.9 times the paper's RMSE at each joint.  An exciting motion is fitted, an independent one
predicted.  The literal truth has velocity constants of 1e-3 rad/s, below any speed of the motion; a second one has
constants near 0.05 rad/s, and slow passes through them.  PSO-LM is run in its default, separable formulation, and
like LM and PSO over all parameters at once ("full:").
"""

from typing import Any

import numpy as np

from drivers.files.robots.file import load_robot
from service.operations.compare import Comparison, Conditions, compare

#: The paper's RMSE on its validation trajectory [N*m].
PAPER_RMSE = np.array([3.9462, 5.0670, 3.2432, 1.4322, 1.0583, 1.1699])
NOISE_SHARE = 0.9
MIN_R = 0.97
MAX_ERROR = 0.2  # of the paper's RMSE, against the noise-free torque
BELOW_PSO = 0.4
MIN_COVERAGE = 0.9  # of the constants that are reported
SLOW_S = 20.0
METHODS = ("wls", "pso_lm", "full:lm", "full:pso_linear", "full:pso_lm")


def truth(robot: str, methods: tuple[str, ...], seeds: int, seconds: float, slow_s: float = 0.0) -> Comparison:
    """All methods on one truth."""
    conditions = Conditions(seconds=seconds, validation_s=20.0, slow_s=slow_s, noise=NOISE_SHARE * PAPER_RMSE)
    return compare(load_robot(robot).model, methods, seeds, conditions)


def figures(result: Comparison, method: str) -> dict[str, Any]:
    """Worst joint's figures of one method in units of the paper's, medians over seeds and the worst seed."""
    trials = [t for t in result.of(method) if not t.failure]
    error = np.array([t.torque_error for t in trials]) / PAPER_RMSE
    rmse = np.array([t.rmse for t in trials]) / PAPER_RMSE
    R = np.array([t.R for t in trials])
    constants = [c for t in trials for c in t.constants.values()]
    return {
        "method": method,
        "failed": int(result.summary(method)["failed"]),
        "error": float(np.median(error.max(axis=1))),
        "worst_error": float(error.max()),
        "worst_rmse": float(rmse.max()),
        "least_R": float(R.min()),
        "total_error": float(result.summary(method)["error_in_noise"]),
        "seconds": float(result.summary(method)["seconds"]),
        "constants": len(constants),
        "determined": sum(c["status"] in ("determined", "weak") for c in constants),
        "inside": sum(c["inside"] for c in constants if c["status"] in ("determined", "weak")),
    }


def torque_fit(seeds: int = 20, seconds: float = 60.0) -> dict[str, Any]:
    """Both truths; `problems` names what misses its target."""
    problems: list[str] = []
    literal = truth("space6_dyn", METHODS, seeds, seconds)
    second = truth("space6_stribeck", ("wls", "pso_lm"), seeds, seconds - SLOW_S, SLOW_S)
    out: dict[str, Any] = {"seeds": seeds, "seconds": seconds, "paper_rmse": PAPER_RMSE.tolist()}
    for name, result in (("literal", literal), ("second", second)):
        out[name] = {method: figures(result, method) for method in result.methods}
    total = {m: f["total_error"] for m, f in out["literal"].items()}
    pairs = zip(literal.of("full:pso_lm"), literal.of("full:lm"), strict=True)
    out["pso_lm_over_lm"] = float(np.median([literal.total_error(a) / literal.total_error(b) for a, b in pairs]))
    for name, method in (("literal", "wls"), ("literal", "full:pso_lm"), ("second", "wls"), ("second", "pso_lm")):
        f = out[name][method]
        limits = (("worst_error", MAX_ERROR, 1), ("worst_rmse", 1.0, 1), ("least_R", MIN_R, -1))
        for figure, limit, sign in limits:
            if not sign * f[figure] < sign * limit:
                problems.append(f"{name} truth, {method}: {figure} {f[figure]:.3f}, limit {limit}")
    if not total["pso_lm"] <= total["full:lm"]:
        problems.append(f"PSO-LM's error {total['pso_lm']:.4f} exceeds LM's {total['full:lm']:.4f}")
    problems += [
        f"{name}'s error {total[name]:.4f} is not 40 % below PSO's {total['full:pso_linear']:.4f}"
        for name in ("pso_lm", "full:pso_lm")
        if not total[name] <= (1.0 - BELOW_PSO) * total["full:pso_linear"]
    ]
    for name in ("literal", "second"):
        for method, f in out[name].items():
            if f["failed"]:
                problems.append(f"{name} truth, {method}: no result in {f['failed']} of {seeds} seeds")
            if f["inside"] < MIN_COVERAGE * f["determined"]:
                problems.append(
                    f"{name} truth, {method}: {f['inside']} of {f['determined']} intervals hold the constant"
                )
    if not out["second"]["wls"]["determined"]:
        problems.append("second truth: no constant is determined")
    out["problems"] = problems
    return out


def table(result: dict[str, Any]) -> list[str]:
    """Lines to read."""
    ratio = (
        f"DYN, literal truth, all parameters at once: PSO-LM's error over LM's, median {result['pso_lm_over_lm']:.3f}"
    )
    return [ratio] + [
        f"DYN, {name} truth, {result['seeds']} seeds, {f['method']}: error against noise-free torque "
        f"{100 * f['error']:.1f} % of the paper's RMSE at the worst joint (worst seed {100 * f['worst_error']:.1f}), "
        f"rmse {f['worst_rmse']:.3f} of it, least R {f['least_R']:.4f}, total error {f['total_error']:.4f} of the "
        f"noise, {f['seconds']:.2g} s; constants: {f['inside']} of {f['determined']} reported intervals hold the "
        f"truth, {f['constants'] - f['determined']} not reported"
        for name in ("literal", "second")
        for f in result[name].values()
    ]
