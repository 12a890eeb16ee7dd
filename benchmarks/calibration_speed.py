"""Speed of a kinematic calibration beside plain Python with NumPy, and beside pybotics with SciPy, in the same run.

The swarm of KIN (24 parameters, 45 poses, 60 particles, 50 iterations) in plain Python multiplies 4x4 matrices for each
particle and pose.  pybotics needs an older NumPy than this package declares; it runs with this one if it is installed
without its dependencies: pip install --no-deps pybotics attrs.
"""

import importlib.util
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from benchmarks import kin
from drivers.files.robots.file import load_robot
from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.error_model import error_model
from rt_core.calibration.fit import Objective, minimise
from rt_core.calibration.frames import with_fitted_frames
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.sample import Sample
from rt_core.calibration.settings import CalibrationSettings
from rt_core.model.dh import DhRow
from rt_core.optimise.settings import KIN
from rt_core.types import FloatArray, IntArray
from service.operations.calibration.nominal_geometry import nominal_geometry

TARGETS = {"swarm": 200.0, "lm_ms": 5.0, "pybotics": 500.0}
ROUNDS = 20
POSES = 100
MAX = 60  # iterations of the peer


def plain_forward(rows: list[tuple[float, float, float, float]], q: FloatArray) -> FloatArray:
    """Position of the last frame of standard DH rows (a, alpha, d, theta) at one posture."""
    T = np.eye(4)
    for (a, alpha, d, theta), angle in zip(rows, q, strict=True):
        c, s, ca, sa = np.cos(theta + angle), np.sin(theta + angle), np.cos(alpha), np.sin(alpha)
        T = T @ np.array(
            [[c, -s * ca, s * sa, a * c], [s, c * ca, -c * sa, a * s], [0.0, sa, ca, d], [0.0, 0.0, 0.0, 1.0]]
        )
    return T[:3, 3]


def plain_cost(geometry: Geometry, x: FloatArray, q: FloatArray, measured: FloatArray) -> float:
    """Root-mean-square distance with the errors `x` (4n,) of a, alpha, d, theta, row by row."""
    errors = x.reshape(-1, 4)
    rows = [
        (r.a + e[0], r.alpha + e[1], r.d + e[2], r.theta + e[3]) for r, e in zip(geometry.rows, errors, strict=True)
    ]
    square = 0.0
    for posture, point in zip(q, measured, strict=True):
        square += float(np.sum((plain_forward(rows, posture) - point) ** 2))
    return float(np.sqrt(square / len(q)))


def plain_swarm(geometry: Geometry, q: FloatArray, measured: FloatArray, box: FloatArray, iterations: int) -> float:
    """Swarm of KIN in plain Python and NumPy; returns the best cost."""
    s, rng = KIN[0], np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (s.particles, box.size)) * box
    v = np.zeros_like(x)
    own, own_cost = x.copy(), np.array([plain_cost(geometry, p, q, measured) for p in x])
    for k in range(iterations):
        w = s.w_start + (s.w_end - s.w_start) * k / max(iterations - 1, 1)
        best = own[np.argmin(own_cost)]
        r1, r2 = rng.random((2, *x.shape))
        v = w * v + s.c1 * r1 * (own - x) + s.c2 * r2 * (best - x)
        x = np.clip(x + v, -box, box)
        for i, p in enumerate(x):
            cost = plain_cost(geometry, p, q, measured)
            if cost < own_cost[i]:
                own[i], own_cost[i] = p, cost
    return float(own_cost.min())


def least_time(work: Any, rounds: int = ROUNDS) -> float:
    """Return the least time of a call [s] of `rounds`, after one that compiles: what others do only adds to it."""
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def swarm(iterations: int) -> dict[str, Any]:
    """Compare the swarm stage with all 24 parameters, and time 20 iterations of Levenberg-Marquardt."""
    t = kin.task(0)
    # Rows without Hayati's beta, as the paper: 24 parameters.
    model, sample, _, _ = kin.training(t)
    names = [f"{name}{k}" for k in range(1, 7) for name in ("a", "alpha", "d", "theta")]
    inside = [name for name in names if name in model.names]
    inside += [name for name in model.names if name not in names][: len(names) - len(inside)]
    free = np.array(sorted(model.index(name) for name in inside))
    width = np.where(model.rotary, kin.RANGE[1], kin.RANGE[0])
    objective = Objective(model, sample, free, np.zeros(model.size), np.ones(2))
    settings = CalibrationSettings(method="pso", swarm_iterations=iterations, particles=60)
    own = least_time(lambda: minimise(objective, width, settings), 5)
    q, measured = t.q[t.use], t.measured[t.use]
    box = np.tile([kin.RANGE[0], kin.RANGE[1], kin.RANGE[0], kin.RANGE[1]], 6)
    start = time.perf_counter()
    plain_swarm(t.geometry, q, measured, box, iterations)
    plain = time.perf_counter() - start
    _, _, good, _ = kin.training(t)
    lm = least_time(lambda: forced_lm(good, width, 20), 20)
    return {
        "parameters": int(free.size), "poses": len(q), "iterations": iterations, "own_ms": 1e3 * own,
        "plain_s": plain, "ratio": plain / own, "lm_ms": 1e3 * lm, "lm_parameters": int(good.free.size),
    }  # fmt: skip


def forced_lm(objective: Objective, width: FloatArray, iterations: int) -> None:
    """Run `iterations` of Levenberg-Marquardt, also where fewer would do."""
    from rt_core.optimise.problem import Problem
    from rt_core.optimise.registry import optimise
    from rt_core.optimise.settings import Budget, Settings

    box = width[objective.free]
    problem = Problem(-box, box, objective.costs, lambda x: objective.normal(x)[:2])
    settings = Settings(mu_start=1e-4, scaling="diagonal", mu_limit=1e300)
    optimise("lm", problem, settings, Budget(lm_iterations=iterations), seed=0, x0=np.zeros(box.size))


def determined(geometry: Geometry, q: FloatArray, measured: FloatArray, names: tuple[str, ...]) -> IntArray:
    """Return the places in `names` of the parameters that these poses determine, with their noise."""
    found = calibrate(geometry, q, measured)
    return np.array([k for k, name in enumerate(names) if name in found.free], dtype=np.int64)


def beside_pybotics(data: Path) -> dict[str, Any] | None:
    """LM on UR10 poses, base and tool unknown, both from the same start; None without pybotics or the recording."""
    file = data / "ur10_lasertracker" / "series_A.npz"
    if importlib.util.find_spec("pybotics") is None or not file.is_file():
        return None
    from pybotics.kinematic_chain import MDHKinematicChain
    from pybotics.optimization import OptimizationHandler, optimize_accuracy
    from pybotics.robot import Robot
    from pybotics.tool import Tool

    series = np.load(file)
    chosen = np.random.default_rng(0).permutation(len(series["q"]))[:POSES]
    q, measured = series["q"][chosen], 1e-3 * series["meas_xyz_mm"][chosen]
    geometry = nominal_geometry(load_robot("ur10"))
    sample = Sample.of(q, measured)
    model = with_fitted_frames(error_model(geometry), sample, CalibrationSettings(), lambda: None)
    free = determined(geometry, q, measured, model.names)
    objective = Objective(model, sample, free, np.zeros(model.size), np.ones(2))
    width = np.where(model.rotary, 0.1, 0.05)
    own = least_time(lambda: minimise(objective, width))
    x, _ = minimise(objective, width)
    left = model.residual(sample, x)

    # A standard table is a modified one whose rows hold the twist and length of the row before.
    rows = [(0.0, 0.0), *((r.alpha, r.a) for r in geometry.rows[:-1])]
    chain = np.array([(al, a, r.theta, r.d) for (al, a), r in zip(rows, geometry.rows, strict=True)]).ravel()
    robot = Robot(MDHKinematicChain.from_parameters(chain), tool=Tool())
    nothing = np.zeros(model.size)
    for which, put in (("base", "world"), ("tool", "tool")):
        R, p = model.frame(which, nothing)
        T = np.eye(4)
        T[:3, :3], T[:3, 3] = R, p
        if put == "world":
            robot.world_frame = T
        else:
            robot.tool.matrix = T
    # What these poses do not determine is left out, or the peer would not end.
    modified = Geometry.from_rows(
        [DhRow(r.name, a, al, r.d, r.theta) for (al, a), r in zip(rows, geometry.rows, strict=True)], "mdh"
    )
    names = tuple(f"{name}{k}" for k in range(1, 7) for name in ("alpha", "a", "theta", "d"))
    mask = np.isin(np.arange(len(names)), determined(modified, q, measured, names)).tolist()
    handler = OptimizationHandler(
        robot, kinematic_chain_mask=mask, tool_mask=[True] * 3 + [False] * 3, world_mask=[True] * 6
    )
    start_vector = handler.generate_optimization_vector()
    start = time.perf_counter()
    found = least_squares(optimize_accuracy, start_vector, args=(handler, q, measured), max_nfev=MAX)
    peer = time.perf_counter() - start
    before = optimize_accuracy(start_vector, handler, q, measured)
    return {
        "poses": POSES, "own_ms": 1e3 * own, "pybotics_s": peer, "ratio": peer / own,
        "before_mm": 1e3 * float(np.sqrt(np.mean(before**2))),
        "own_rms_mm": 1e3 * float(np.sqrt(np.mean(np.sum(left**2, axis=1)))),
        "pybotics_rms_mm": 1e3 * float(np.sqrt(np.mean(found.fun**2))),
        "parameters": int(free.size), "pybotics_parameters": int(found.x.size),
    }  # fmt: skip


def run(quick: bool = False) -> dict[str, Any]:
    """Both comparisons; `problems` names what misses its target."""
    s = swarm(5 if quick else 50)
    data = Path(os.environ.get("THETAD_DATA", "../shared/data"))
    p = beside_pybotics(data)
    problems = []
    if s["ratio"] < TARGETS["swarm"]:
        problems.append(f"calibration, swarm: {s['ratio']:.0f} times faster, target {TARGETS['swarm']:g}")
    if s["lm_ms"] > TARGETS["lm_ms"]:
        problems.append(f"calibration, LM: {s['lm_ms']:.2f} ms, target {TARGETS['lm_ms']:g}")
    if p is not None and not (p["ratio"] >= TARGETS["pybotics"] and p["own_rms_mm"] < p["pybotics_rms_mm"]):
        problems.append(f"calibration, pybotics: {p['ratio']:.0f} times faster, target {TARGETS['pybotics']:g}")
    return {"swarm": s, "pybotics": p, "problems": problems}


def table(result: dict[str, Any]) -> list[str]:
    """Lines to read."""
    s, p = result["swarm"], result["pybotics"]
    lines = [
        f"calibration, {s['parameters']} parameters, {s['poses']} poses, swarm of 60, {s['iterations']} iterations: "
        f"{s['own_ms']:.1f} ms, plain Python and NumPy {s['plain_s']:.2f} s: {s['ratio']:.0f} times faster (target "
        f"{TARGETS['swarm']:g}); 20 iterations of LM, {s['lm_parameters']} parameters: {s['lm_ms']:.2f} ms (target "
        f"{TARGETS['lm_ms']:g}); least times"
    ]
    if p is None:
        return [*lines, "calibration, pybotics: skipped: pip install --no-deps pybotics attrs, and THETAD_DATA"]
    return [
        *lines,
        f"calibration, LM, {p['poses']} poses of a UR10, {p['parameters']} parameters: {p['own_ms']:.2f} ms to "
        f"{p['own_rms_mm']:.3f} mm rms; pybotics with scipy.optimize.least_squares, {p['pybotics_parameters']} "
        f"parameters: {p['pybotics_s']:.1f} s to {p['pybotics_rms_mm']:.3f} mm: {p['ratio']:.0f} times faster (target "
        f"{TARGETS['pybotics']:g})",
    ]
