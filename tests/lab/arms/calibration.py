"""Arms, and their forward kinematics by textbook matrices, one element after the other."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from rt_core.calibration.error_model import ErrorModel, error_model
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.identifiability import identifiability
from rt_core.calibration.sample import Sample
from rt_core.model.dh import DhRow
from rt_core.types import FloatArray

RIGHT = np.pi / 2.0


def table(
    a: list[float], alpha: list[float], d: list[float], convention: str = "dh", prismatic: tuple[int, ...] = ()
) -> Geometry:
    """Arm of a DH table; joints in `prismatic` (from 0) slide."""
    rows = [
        DhRow(f"joint_{k + 1}", a[k], alpha[k], d[k], 0.0, "prismatic" if k in prismatic else "revolute")
        for k in range(len(a))
    ]
    return Geometry.from_rows(rows, "mdh" if convention == "mdh" else "dh")


PLANAR_2R = table([0.4, 0.3], [0.0, 0.0], [0.0, 0.0])
SCARA = table([0.35, 0.25, 0.0, 0.0], [0.0, np.pi, 0.0, 0.0], [0.3, 0.0, 0.0, 0.05], prismatic=(2,))
UR10 = table(
    [0.0, -0.612, -0.5723, 0.0, 0.0, 0.0],
    [RIGHT, 0.0, 0.0, RIGHT, -RIGHT, 0.0],
    [0.1273, 0.0, 0.0, 0.163941, 0.1157, 0.0922],
)
PANDA = table(
    [0.0, 0.0, 0.0, 0.0825, -0.0825, 0.0, 0.088], [0.0, -RIGHT, RIGHT, RIGHT, -RIGHT, RIGHT, RIGHT],
    [0.333, 0.0, 0.316, 0.0, 0.384, 0.0, 0.0], "mdh",
)  # fmt: skip


def random_arm(n: int, convention: str, rng: np.random.Generator) -> Geometry:
    """Arm with offsets everywhere and no axes near to parallel."""
    alpha = rng.choice([-1.0, 1.0], n) * rng.uniform(0.9, 1.8, n)
    a, d = rng.uniform(0.1, 0.4, n), rng.uniform(0.1, 0.4, n)
    return table(a.tolist(), alpha.tolist(), d.tolist(), convention)


def postures(geometry: Geometry, count: int, rng: np.random.Generator) -> FloatArray:
    """(count, n) joint positions in the whole range of a joint."""
    reach = np.where(geometry.revolute, np.pi, 0.2)
    return rng.uniform(-1.0, 1.0, (count, geometry.n)) * reach


def _turn(axis: int, angle: float) -> FloatArray:
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec(angle * np.eye(3)[axis]).as_matrix()
    return T


def _shift(axis: int, distance: float) -> FloatArray:
    T = np.eye(4)
    T[axis, 3] = distance
    return T


def forward(
    geometry: Geometry, q: FloatArray, errors: Mapping[str, float], base: FloatArray, tool: FloatArray
) -> FloatArray:
    """Poses (N, 4, 4) of an arm of DH rows with errors by name, a base (4, 4) and a tool (4, 4)."""
    out = np.empty((q.shape[0], 4, 4))
    for i, posture in enumerate(q):
        T = base.copy()
        for k, (row, value) in enumerate(zip(geometry.rows, posture, strict=True), start=1):
            slides = row.kind == "prismatic"
            theta = row.theta + errors.get(f"theta{k}", 0.0) + (0.0 if slides else value)
            d = row.d + errors.get(f"d{k}", 0.0) + (value if slides else 0.0)
            a, alpha = row.a + errors.get(f"a{k}", 0.0), row.alpha + errors.get(f"alpha{k}", 0.0)
            beta = _turn(1, errors.get(f"beta{k}", 0.0))
            joint = _turn(2, theta) @ _shift(2, d)
            if geometry.convention == "mdh":
                T = T @ _turn(0, alpha) @ _shift(0, a) @ beta @ joint
            else:
                T = T @ joint @ _shift(0, a) @ _turn(0, alpha) @ beta
        out[i] = T @ tool
    return out


def frame(translation: tuple[float, float, float], rotation: tuple[float, float, float]) -> FloatArray:
    """(4, 4) from a translation [m] and a rotation vector [rad]."""
    T = np.eye(4)
    T[:3, :3] = Rotation.from_rotvec(rotation).as_matrix()
    T[:3, 3] = translation
    return T


def as_measured(poses: FloatArray, orientation: bool) -> FloatArray:
    """(N, 3) positions or (N, 7) poses with quaternions x, y, z, w."""
    if not orientation:
        return poses[:, :3, 3].copy()
    return np.hstack((poses[:, :3, 3], Rotation.from_matrix(poses[:, :3, :3]).as_quat()))


BASE = frame((1.5, -2.0, 0.7), (0.4, -0.3, 2.2))
TOOL = frame((0.06, -0.04, 0.12), (0.2, 0.1, -0.5))


@dataclass(frozen=True)
class Truth:
    """An arm with errors where poses determine them, and what an exact instrument measures."""

    geometry: Geometry
    errors: dict[str, float]
    q: FloatArray
    measured: FloatArray


def truth(
    geometry: Geometry, orientation: bool, count: int, seed: int = 0, tool: FloatArray = TOOL, size: float = 2e-3
) -> Truth:
    rng = np.random.default_rng(seed)
    q = postures(geometry, count, rng)
    model = error_model(geometry, orientation=orientation)
    model = model.with_frame("base", BASE[:3, :3], BASE[:3, 3]).with_frame("tool", tool[:3, :3], tool[:3, 3])
    sample = Sample.of(q, *model.predict(q, np.zeros(model.size)))
    if not orientation:
        sample = Sample.of(q, sample.positions)
    names = [model.names[k] for k in identifiability(model, sample).free]
    errors = {name: float(rng.normal(0.0, size)) for name in names if "_" not in name}
    return Truth(geometry, errors, q, as_measured(forward(geometry, q, errors, BASE, tool), orientation))


def check_derivatives(model: ErrorModel, sample: Sample, x: FloatArray, h: float = 1e-6, atol: float = 1e-7) -> None:
    """Compare the Jacobian with central differences of the residual."""
    J = model.jacobian(sample, x)
    for k, e in enumerate(np.eye(model.size)):
        slope = (model.residual(sample, x + h * e) - model.residual(sample, x - h * e)) / (2.0 * h)
        np.testing.assert_allclose(J[:, :, k], slope, atol=atol, err_msg=model.names[k])
