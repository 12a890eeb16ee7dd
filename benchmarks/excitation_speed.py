"""One evaluation of an excitation, objective and all limits, beside the same built on Pinocchio and NumPy; and the cost
of its derivatives by all coefficients, in evaluations."""

import time
from typing import Any

import numpy as np
import pinocchio as pin

from benchmarks.regressor_speed import twin
from drivers.files.robots.file import load_robot
from rt_core.excitation.constraints import TORQUE_RESERVE
from rt_core.excitation.design import Designer
from rt_core.excitation.gradient import GradientSearch
from rt_core.excitation.settings import ExcitationSettings
from rt_core.excitation.shapes import Capsule
from rt_core.model.friction import LAW_ARMATURE, LAW_COULOMB, LAW_OFFSET, LAW_VISCOUS
from rt_core.model.parameters import ParameterLayout
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

ROUNDS = 41
TARGET = 10.0
GRADIENT_TARGET = 10.0
AGREEMENT = 1e-7
WORKSPACE = ((-0.8, 0.8), (-0.8, 0.8), (0.1, 1.6))


def capsules(model: RobotModel) -> tuple[Capsule, ...]:
    """Capsules from joint to joint, as thick as a tenth of a metre."""
    found = [Capsule("foot", -1, (0.0, 0.0, 0.0), (0.0, 0.0, 0.1), 0.08, base=True)]
    for i in range(model.n):
        end = model.joints[i + 1].translation if i + 1 < model.n else model.tip_translation
        found.append(Capsule(f"link {i}", i, (0.0, 0.0, 0.0), tuple(end.tolist()), 0.05))  # type: ignore[arg-type]
    return tuple(found)


def segment_distance(a: FloatArray, b: FloatArray, c: FloatArray, d: FloatArray) -> FloatArray:
    """Return the distance (N,) of the segments from `a` to `b` and from `c` to `d`, (N, 3) each.

    The smallest distance of each end from the other segment, and of both lines if their nearest points are inside.
    """

    def to_segment(p: FloatArray, start: FloatArray, end: FloatArray) -> FloatArray:
        along = end - start
        length = (along**2).sum(axis=1)
        share = ((p - start) * along).sum(axis=1) / np.where(length > 1e-18, length, 1.0)
        share = np.where(length > 1e-18, np.clip(share, 0.0, 1.0), 0.0)
        return np.asarray(np.linalg.norm(p - start - share[:, None] * along, axis=1))

    least = np.minimum.reduce([to_segment(a, c, d), to_segment(b, c, d), to_segment(c, a, b), to_segment(d, a, b)])
    u, v, w = b - a, d - c, a - c
    uu, uv, vv = (u * u).sum(axis=1), (u * v).sum(axis=1), (v * v).sum(axis=1)
    uw, vw = (u * w).sum(axis=1), (v * w).sum(axis=1)
    volume = uu * vv - uv * uv
    crossing = volume > 1e-12 * uu * vv
    safe = np.where(crossing, volume, 1.0)
    s, t = (uv * vw - vv * uw) / safe, (uu * vw - uv * uw) / safe
    inside = crossing & (s >= 0.0) & (s <= 1.0) & (t >= 0.0) & (t <= 1.0)
    between = np.linalg.norm(w + s[:, None] * u - t[:, None] * v, axis=1)
    return np.asarray(np.where(inside, np.minimum(least, between), least))


class Peer:
    """The same evaluation, as one would write it in Python with Pinocchio for the arm and NumPy for the rest."""

    def __init__(self, designer: Designer) -> None:
        model = designer.model
        self.designer = designer
        self.model = model
        self.twin = twin(model)
        self.data = self.twin.createData()
        layout: ParameterLayout = designer.excitation.layout
        self.links = layout.source[layout.is_link]
        self.is_link = layout.is_link
        self.effects = [(c, int(layout.law[c]), int(layout.source[c])) for c in np.flatnonzero(~layout.is_link)]
        assert model.inertial is not None
        assert model.dynamics is not None
        self.phi = model.inertial.ravel()
        self.placed = sorted({int(link) for link in designer.constraints.workspace.link} - {-1})

    def __call__(self, q0: FloatArray, ab: FloatArray) -> tuple[float, float]:
        designer, model, data = self.designer, self.model, self.data
        q, dq, ddq = designer._grid.evaluate(q0, ab)
        count, n = q.shape
        Y = np.empty((count, n, 10 * n))
        places = np.empty((count, n, 12))
        for t in range(count):
            Y[t] = pin.computeJointTorqueRegressor(self.twin, data, q[t], dq[t], ddq[t])
            pin.forwardKinematics(self.twin, data, q[t])
            for i in self.placed:
                placement = data.oMi[i + 1]
                places[t, i, :9] = placement.rotation.ravel()
                places[t, i, 9:] = placement.translation
        sign = np.sign(dq)
        W = np.zeros((count, n, self.is_link.size))
        W[:, :, self.is_link] = Y[:, :, self.links]
        columns = {LAW_ARMATURE: ddq, LAW_VISCOUS: dq, LAW_COULOMB: sign, LAW_OFFSET: np.ones_like(q)}
        for c, law, i in self.effects:
            W[:, i, c] = columns[law][:, i]
        W = W.reshape(-1, self.is_link.size)
        gram = W.T @ W / (count * n)
        length = np.sqrt(np.diag(gram))
        values = np.linalg.eigvalsh(gram / np.outer(length, length))
        known = model.dynamics
        assert known is not None
        tau = Y @ self.phi + known.armature * ddq + known.viscous * dq + known.coulomb * sign + known.offset
        limits, over = designer.constraints.limits, designer._grid.overshoot
        low, high = q.min(axis=0), q.max(axis=0)
        middle, reach, half = 0.5 * (low + high), 0.5 * over * (high - low), 0.5 * (limits.upper - limits.lower)
        excess = np.maximum((limits.lower - middle + reach) / half, 0.0).sum()
        excess += np.maximum((middle + reach - limits.upper) / half, 0.0).sum()
        for peak, limit in ((over * dq, limits.velocity), (over * ddq, limits.acceleration)):
            excess += np.maximum(np.abs(peak).max(axis=0) / limit - 1.0, 0.0).sum()
        excess += np.maximum(TORQUE_RESERVE * np.abs(tau).max(axis=0) / limits.effort - 1.0, 0.0).sum()
        asked = designer.constraints.workspace
        R, p = places[:, :, :9].reshape(count, n, 3, 3), places[:, :, 9:]
        points = [
            np.broadcast_to(local, (count, 3)) if link < 0 else R[:, link] @ local + p[:, link]
            for link, local in zip(asked.link, asked.local, strict=True)
        ]
        box = np.array(WORKSPACE)
        half = 0.5 * (box[:, 1] - box[:, 0])
        excess += np.maximum((box[:, 0] - points[0].min(axis=0)) / half, 0.0).sum()
        excess += np.maximum((points[0].max(axis=0) - box[:, 1]) / half, 0.0).sum()
        for (a, b, c, d), apart in zip(asked.pairs, asked.reach, strict=True):
            least = segment_distance(points[a], points[b], points[c], points[d]).min()
            excess += max(1.0 - least / apart, 0.0)
        return float(np.sqrt(values[-1] / values[0])), float(excess)


def beside_pinocchio(robot: str, collisions: bool = False) -> dict[str, Any]:
    """Evaluations a second of ours and the peer's, and the cost of a gradient."""
    model = load_robot(robot).model
    settings = ExcitationSettings(workspace=WORKSPACE, bodies=capsules(model) if collisions else ())
    designer = Designer(model, settings)
    peer = Peer(designer)
    x = 1.3 * designer._start(0)  # beyond some limits
    coefficients = designer.space.coefficients(x)
    C = designer.space.stacked(x)
    found, expected = designer.fused.evaluate(C), peer(*coefficients)
    search = GradientSearch(designer.excitation, designer.constraints, designer.space, designer._grid, 1)
    size = search.fused.rows * search.fused.count + model.n
    none = np.zeros(size)
    search.lagrangian(x, 8.0, 1.0, none, none)
    own_s, peer_s, gradient_s = [], [], []
    for _ in range(ROUNDS):
        begin = time.thread_time()
        for _ in range(10):
            designer.fused.evaluate(C)
        own_s.append((time.thread_time() - begin) / 10)
        begin = time.thread_time()
        peer(*coefficients)
        peer_s.append(time.thread_time() - begin)
        begin = time.thread_time()
        for _ in range(4):
            search.lagrangian(x, 8.0, 1.0, none, none)
        gradient_s.append((time.thread_time() - begin) / 4)
    return {
        "robot": robot,
        "joints": model.n,
        "parameters": len(designer.excitation.layout),
        "coefficients": x.size,
        "samples": settings.grid,
        "pairs": len(designer.constraints.workspace.pair_names),
        "own_per_s": 1.0 / float(np.median(own_s)),
        "peer_per_s": 1.0 / float(np.median(peer_s)),
        "ratio": float(np.median(np.array(peer_s) / np.array(own_s))),
        "gradient_in_evaluations": float(np.median(np.array(gradient_s) / np.array(own_s))),
        "gradient_ms": 1e3 * float(np.median(gradient_s)),
        "largest_error": float(np.abs(np.array(found) / np.array(expected) - 1.0).max()),
        "target": TARGET,
        "gradient_target": GRADIENT_TARGET,
    }


def table(results: list[dict[str, Any]]) -> list[str]:
    """One line a robot."""
    return [
        f"excitation, {r['joints']} joints, {r['parameters']} parameters, {r['samples']} samples, {r['pairs']} pairs "
        f"of bodies: {r['own_per_s']:.0f} evaluations a second, Pinocchio and NumPy {r['peer_per_s']:.0f}: "
        f"{r['ratio']:.1f} times as many (target {r['target']:g}); all {r['coefficients']} derivatives "
        f"{r['gradient_ms']:.2f} ms, {r['gradient_in_evaluations']:.1f} evaluations (target "
        f"{r['gradient_target']:g}); agree to {r['largest_error']:.0e}"
        for r in results
    ]


def missed(results: list[dict[str, Any]]) -> list[str]:
    """Lines of those that miss a target."""
    return [
        line
        for r, line in zip(results, table(results), strict=True)
        if r["ratio"] < r["target"]
        or r["gradient_in_evaluations"] > r["gradient_target"]
        or r["largest_error"] > AGREEMENT
    ]
