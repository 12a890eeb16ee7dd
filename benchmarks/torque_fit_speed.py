"""The torque fit of Jing et al. (6 joints, 108 parameters) beside NumPy and SciPy, in the same run.

Peers: the cost from the stacked regressor in NumPy, the cost by a Newton-Euler pass in NumPy for each particle
(vectorised over the samples), and `scipy.optimize.least_squares` with an analytic Jacobian on the full problem.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from drivers.files.robots.file import load_robot
from rt_core.identification.nonlinear.compressed import CompressedTorque, compress_torque
from rt_core.identification.nonlinear.full import FullObjective
from rt_core.identification.nonlinear.search import Search, search_separable
from rt_core.identification.nonlinear.separable import SeparableObjective
from rt_core.identification.preprocess import SignalPiece, Signals, SignalSettings
from rt_core.model.base import BaseParameters, base_parameters, link_torque
from rt_core.model.friction import LAW_BREAKAWAY, LAW_COULOMB, Friction
from rt_core.model.parameters import standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.optimise.registry import optimise
from rt_core.optimise.settings import DYN
from rt_core.types import FloatArray

#: Torque noise: 0.9 times the published error of each joint [N*m].
SIGMA = 0.9 * np.array([3.9462, 5.0670, 3.2432, 1.4322, 1.0583, 1.1699])
SECONDS = 100.0
ROUNDS = 5
TARGETS = {"stacked": 30.0, "newton_euler": 1000.0, "pso_lm": 3.0, "separable": 2.0}


def arm() -> RobotModel:
    """Build the arm with 18 parameters a joint, load-dependent friction among them and no offset."""
    model = load_robot("space6_stribeck").model
    assert model.dynamics is not None
    dynamics: JointDynamics = replace(model.dynamics, load_friction=np.full(model.n, 0.02))
    return replace(model, dynamics=dynamics, friction=Friction("stribeck", load=True), offset=False)


def recording(
    model: RobotModel, base: BaseParameters, samples: int, seed: int = 0
) -> tuple[Signals, SignalSettings, FloatArray]:
    """Record exact states, slow ones among them, and noisy torque (no filter is needed); and the joints' load.

    The load is that of the true links: the measured torque would bring its noise into the regressor.
    """
    rng = np.random.default_rng(seed)
    rate = samples / SECONDS
    t = np.arange(samples) / rate
    q, dq, ddq = np.zeros((3, samples, model.n))
    for j in range(model.n):
        for f, reach in ((0.03, 0.4), (0.01, 0.6), *((f, 0.25) for f in rng.uniform(0.1, 0.6, 3))):
            w, phase = 2 * np.pi * f, rng.uniform(0, 2 * np.pi)
            q[:, j] += reach * np.sin(w * t + phase)
            dq[:, j] += reach * w * np.cos(w * t + phase)
            ddq[:, j] -= reach * w**2 * np.sin(w * t + phase)
    phi = standard_parameters(model, base.standard)
    load = link_torque(model, base, base.theta(phi), q, dq, ddq)
    tau = regressor(model, base.standard, q, dq, ddq, load=load) @ phi + SIGMA * rng.standard_normal(q.shape)
    signals = Signals((SignalPiece(t, q, dq, ddq, tau),), rate, 0.0, float(t[-1]), 0, 0, 0, 0, True)
    return signals, SignalSettings(cutoff_hz=0.49 * rate, rate_hz=rate, trim_s=0.0), load


def compressed(model: RobotModel, base: BaseParameters, signals: Signals, settings: SignalSettings) -> CompressedTorque:
    """Compress with the true links' load."""
    theta = base.theta(standard_parameters(model, base.standard))
    return compress_torque(model, base, signals, settings, load_theta=theta)


class Stacked:
    """The literal cost from the stacked regressor of all 102 linear columns."""

    def __init__(self, model: RobotModel, base: BaseParameters, signals: Signals, load: FloatArray) -> None:
        piece = signals.pieces[0]
        layout = base.standard
        shape = layout.shape.copy()
        shape[np.isin(layout.law, model.friction.shaped), 0] = 0.0
        W = regressor(model, replace(layout, shape=shape), piece.q, piece.dq, piece.ddq, load=load)
        self.shape = W.shape
        self.W = (
            np.ascontiguousarray(W.transpose(1, 0, 2)).reshape(-1, len(layout)) / np.repeat(SIGMA, W.shape[0])[:, None]
        )
        self.tau = (piece.tau / SIGMA).T.ravel()
        self.square = np.ascontiguousarray((piece.dq**2).T)
        self.sign = np.ascontiguousarray((np.sign(piece.dq) / SIGMA).T)
        self.fb = np.flatnonzero(layout.law == LAW_BREAKAWAY)
        self.fc = np.flatnonzero(layout.law == LAW_COULOMB)

    def residual(self, point: FloatArray) -> FloatArray:
        P = self.W.shape[1]
        phi, vb = point[:P], np.exp(point[P:])
        shaped = self.sign * np.exp(-self.square / (vb**2)[:, None]) * (phi[self.fb] - phi[self.fc])[:, None]
        return np.asarray(self.W @ phi + shaped.ravel() - self.tau)

    def cost(self, point: FloatArray) -> float:
        r = self.residual(point)
        return float(r @ r)

    def jacobian(self, point: FloatArray) -> FloatArray:
        P, n = self.W.shape[1], self.sign.shape[0]
        phi, vb = point[:P], np.exp(point[P:])
        J = np.zeros((self.W.shape[0], P + n))
        J[:, :P] = self.W
        count = self.sign.shape[1]
        for j in range(n):
            rows = slice(j * count, (j + 1) * count)
            ratio = self.square[j] / vb[j] ** 2
            e = self.sign[j] * np.exp(-ratio)
            J[rows, self.fb[j]] += e
            J[rows, self.fc[j]] -= e
            J[rows, P + j] = (phi[self.fb[j]] - phi[self.fc[j]]) * e * 2.0 * ratio
        return J


class NewtonEuler:
    """The literal cost by recursive Newton-Euler in NumPy, all samples at once."""

    def __init__(self, model: RobotModel, base: BaseParameters, signals: Signals, load: FloatArray) -> None:
        self.model, self.layout, self.piece = model, base.standard, signals.pieces[0]
        self.load = load
        self.column = {name: k for k, name in enumerate(base.standard.names)}

    def links(self, inertial: FloatArray) -> FloatArray:
        piece, n = self.piece, self.model.n
        count = piece.t.size
        w, dw, a = np.zeros((3, count, 3))
        a -= self.model.gravity
        state = []
        for i, joint in enumerate(self.model.joints):
            axis = joint.axis
            angle = piece.q[:, i, None, None]
            K = np.array([[0.0, -axis[2], axis[1]], [axis[2], 0.0, -axis[0]], [-axis[1], axis[0], 0.0]])
            R = joint.rotation @ (np.eye(3) + np.sin(angle) * K + (1.0 - np.cos(angle)) * (K @ K))
            a = a + np.cross(dw, joint.translation) + np.cross(w, np.cross(w, joint.translation))
            w, dw, a = (np.einsum("nji,nj->ni", R, x) for x in (w, dw, a))
            turn = axis * piece.dq[:, i, None]
            dw = dw + axis * piece.ddq[:, i, None] + np.cross(w, turn)
            w = w + turn
            m, h = inertial[i, 0], inertial[i, 1:4]
            xx, xy, yy, xz, yz, zz = inertial[i, 4:]
            tensor = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
            force = m * a + np.cross(dw, h) + np.cross(w, np.cross(w, h))
            moment = np.cross(h, a) + dw @ tensor + np.cross(w, w @ tensor)
            state.append((R, force, moment))
        tau = np.empty((count, n))
        for i in range(n - 1, -1, -1):
            R, force, moment = state[i]
            tau[:, i] = moment @ self.model.joints[i].axis
            if i:
                force = np.einsum("nij,nj->ni", R, force)
                moment = np.einsum("nij,nj->ni", R, moment) + np.cross(self.model.joints[i].translation, force)
                up = state[i - 1]
                state[i - 1] = (up[0], up[1] + force, up[2] + moment)
        return tau

    def cost(self, point: FloatArray) -> float:
        P, n, piece = len(self.layout), self.model.n, self.piece
        phi, vb = point[:P], np.exp(point[P:])
        tau = self.links(phi[self.layout.is_link].reshape(n, 10))
        v, sign = piece.dq, np.sign(piece.dq)

        def of(symbol: str) -> FloatArray:
            return phi[[self.column[f"{symbol}{i + 1}"] for i in range(n)]]

        decay = np.exp(-((v / vb) ** 2))
        tau += of("Ia") * piece.ddq + of("kv1_") * v + of("kv2_") * v * np.abs(v) + of("kv3_") * v**3
        tau += (of("fc") + (of("fb") - of("fc")) * decay) * sign + of("k1_") * np.abs(self.load) * sign
        e = (piece.tau - tau) / SIGMA
        return float((e * e).sum())


def _seconds(task: Callable[[], object], repeats: int) -> float:
    begin = time.thread_time()
    for _ in range(repeats):
        task()
    return (time.thread_time() - begin) / repeats


def fitness(samples: int) -> dict[str, Any]:
    """Compare one fitness evaluation, in a swarm of a hundred, with the literal ones."""
    model = arm()
    base = base_parameters(model)
    signals, settings, load = recording(model, base, samples)
    objective = FullObjective(compressed(model, base, signals, settings), SIGMA)
    problem = objective.problem()
    points = np.random.default_rng(1).uniform(problem.lower, problem.upper, (100, problem.lower.size))
    truth = np.log(np.asarray(model.dynamics.stribeck_velocity if model.dynamics else 0.0))
    points[0] = np.concatenate((standard_parameters(model, base.standard), truth))
    stacked, newton = Stacked(model, base, signals, load), NewtonEuler(model, base, signals, load)
    own = objective.costs(points)
    literal = np.array([stacked.cost(x) for x in points])
    error = float(max(np.abs(own / literal - 1.0).max(), abs(own[0] / newton.cost(points[0]) - 1.0)))
    times: dict[str, list[float]] = {"own": [], "stacked": [], "newton_euler": []}
    for k in range(ROUNDS):
        times["own"].append(_seconds(lambda: objective.costs(points), 20) / len(points))
        times["stacked"].append(_seconds(lambda x=points[k]: stacked.cost(x), 5))  # type: ignore[misc]
        times["newton_euler"].append(_seconds(lambda x=points[k]: newton.cost(x), 1))  # type: ignore[misc]
    medians = {name: float(np.median(values)) for name, values in times.items()}
    return {
        "samples": samples,
        "parameters": int(problem.lower.size),
        "own_us": 1e6 * medians["own"],
        "stacked_us": 1e6 * medians["stacked"],
        "newton_euler_us": 1e6 * medians["newton_euler"],
        "stacked_ratio": medians["stacked"] / medians["own"],
        "newton_euler_ratio": medians["newton_euler"] / medians["own"],
        "largest_error": error,
        "targets": {name: TARGETS[name] for name in ("stacked", "newton_euler")},
    }


def hybrid(samples: int = 5000) -> dict[str, Any]:
    """Compare the whole PSO-LM (100 particles, 300 and 100 iterations) with its PSO part."""
    model = arm()
    base = base_parameters(model)
    signals, settings, _ = recording(model, base, samples)
    data = compressed(model, base, signals, settings)
    problem = FullObjective(data, SIGMA).problem()
    both, swarm = [], []
    for seed in range(ROUNDS):
        both.append(_seconds(lambda s=seed: optimise("pso_lm", problem, *DYN, seed=s), 1))  # type: ignore[misc]
        swarm.append(_seconds(lambda s=seed: optimise("pso_linear", problem, *DYN, seed=s), 1))  # type: ignore[misc]
    return {
        "samples": samples,
        "pso_lm_s": float(np.median(both)),
        "pso_s": float(np.median(swarm)),
        "ratio": float(np.median(np.array(both) / np.array(swarm))),
        "target": TARGETS["pso_lm"],
    }


def separable(samples: int = 5000, starts: int = 8) -> dict[str, Any]:
    """Compare the separable fit from several starts, compression included, with SciPy from one."""
    model = arm()
    base = base_parameters(model)
    signals, settings, load = recording(model, base, samples)

    def fit() -> tuple[CompressedTorque, FloatArray]:
        data = compressed(model, base, signals, settings)
        return data, search_separable(data, Search(starts=starts), SIGMA).x

    data, x = fit()
    own = float(SeparableObjective(data, SIGMA).costs(x[None])[0])
    own_s = float(np.median([_seconds(fit, 1) for _ in range(3)]))
    search_s = _seconds(lambda: search_separable(data, Search(starts=starts), SIGMA), 3)
    stacked = Stacked(model, base, signals, load)
    rng = np.random.default_rng(0)
    problem = FullObjective(data, SIGMA).problem()
    start = rng.uniform(problem.lower, problem.upper)
    begin = time.thread_time()
    peer = least_squares(stacked.residual, start, stacked.jacobian, x_scale="jac", max_nfev=100)
    peer_s = time.thread_time() - begin
    return {
        "samples": samples,
        "starts": starts,
        "own_s": own_s,
        "search_s": search_s,
        "scipy_s": peer_s,
        "ratio": peer_s / own_s,
        "own_cost": own,
        "scipy_cost": 2.0 * float(peer.cost),
        "scipy_evaluations": int(peer.nfev),
        "target": TARGETS["separable"],
    }
