"""Export of a model as a Python module with one function, `torque(q, dq, ddq)`, that needs nothing but Python."""

from __future__ import annotations

import itertools

import numpy as np

from rt_core.model.friction import (
    LAW_ARMATURE,
    LAW_BREAKAWAY,
    LAW_BREAKAWAY_TEMPERATURE,
    LAW_COSINE,
    LAW_COULOMB,
    LAW_COULOMB_TEMPERATURE,
    LAW_CUBIC,
    LAW_DECAYING_VISCOUS,
    LAW_LINK,
    LAW_LOAD,
    LAW_OFFSET,
    LAW_QUADRATIC_EVEN,
    LAW_QUADRATIC_ODD,
    LAW_SINE,
    LAW_TANH,
    LAW_VISCOUS,
    LAW_VISCOUS_TEMPERATURE,
    TEMPERATURE,
)
from rt_core.model.ranges import LEAVES
from rt_core.types import FloatArray
from service.models.document import ModelFile
from service.models.export_urdf import plain_text

_PYTHON = '''"""Joint torque of {robot}, identified by thetad ({kind}, {method}) from {recording}.

    tau = torque(q, dq, ddq{argument})

takes and gives sequences of {n} numbers: position [rad or m], velocity, acceleration{takes}; torque [N*m or N].
Needs nothing but Python.  Verdict of the identification: {verdict}.{ranges}
"""

from math import cos, exp, sin, tanh
{imports}
GRAVITY = {gravity}
# Per joint: rotation = A0 + cos(q)*A1 + sin(q)*A2 (row-major), origin = P + q*D, axis, revolute.
JOINTS = {joints}
# Per link, about its frame: m, mx, my, mz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz; {meaning}.
LINKS = {links}
# Joint effects: (law, value, weights of the joint coordinates, velocity constant, exponent, smoothing velocity{field}).
EFFECTS = {effects}
{range}

def _cross(a, b):
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def _add(*vectors):
    return tuple(sum(x) for x in zip(*vectors))


def _times(s, a):
    return tuple(s * x for x in a)


def _dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def _turn(R, a):
    return tuple(R[3 * i] * a[0] + R[3 * i + 1] * a[1] + R[3 * i + 2] * a[2] for i in range(3))


def _turn_back(R, a):
    return tuple(R[i] * a[0] + R[3 + i] * a[1] + R[6 + i] * a[2] for i in range(3))


def _effect(law, position, speed, acceleration, load, constant, exponent, smoothing):
    if law in ("armature", "viscous", "offset"):
        return {{"armature": acceleration, "viscous": speed, "offset": 1.0}}[law]
    if law in ("sine", "cosine"):
        return sin(position) if law == "sine" else cos(position)
    if law in ("quadratic_odd", "quadratic_even", "cubic"):
        return {{"quadratic_odd": speed * abs(speed), "quadratic_even": speed**2, "cubic": speed**3}}[law]
    if law == "tanh":
        return tanh(speed / constant) if constant > 0.0 else 0.0
    decay = exp(-((abs(speed) / constant) ** exponent)) if constant > 0.0 else 0.0
    if law == "decaying_viscous":
        return speed * decay
    sign = tanh(speed / smoothing) if smoothing > 0.0 else float(speed > 0.0) - float(speed < 0.0)
    return sign * {{"coulomb": 1.0 - decay, "breakaway": decay, "load": abs(load)}}[law]


def torque(q, dq, ddq{argument}):
    """Joint torques for one state: recursive Newton-Euler, then the joint effects."""
{check}{fast}    w = dw = (0.0, 0.0, 0.0)
    a = _times(-1.0, GRAVITY)
    frames = []
    for i, (A0, A1, A2, P, D, axis, revolute) in enumerate(JOINTS):
        c, s = cos(q[i]), sin(q[i])
        R = tuple(x + c * y + s * z for x, y, z in zip(A0, A1, A2))
        p = _add(P, _times(q[i], D))
        a = _turn_back(R, _add(a, _cross(dw, p), _cross(w, _cross(w, p))))
        w, dw = _turn_back(R, w), _turn_back(R, dw)
        coriolis = _times(dq[i], _cross(w, axis))
        if revolute:
            dw = _add(dw, _times(ddq[i], axis), coriolis)
            w = _add(w, _times(dq[i], axis))
        else:
            a = _add(a, _times(ddq[i], axis), _times(2.0, coriolis))
        m, hx, hy, hz, xx, xy, yy, xz, yz, zz = LINKS[i]
        h = (hx, hy, hz)
        inertia = (xx, xy, xz, xy, yy, yz, xz, yz, zz)
        force = _add(_times(m, a), _cross(dw, h), _cross(w, _cross(w, h)))
        moment = _add(_cross(h, a), _turn(inertia, dw), _cross(w, _turn(inertia, w)))
        frames.append([R, p, force, moment])
    tau = [0.0] * len(JOINTS)
    for i in range(len(JOINTS) - 1, -1, -1):
        R, p, force, moment = frames[i]
        axis, revolute = JOINTS[i][5], JOINTS[i][6]
        tau[i] = _dot(axis, moment if revolute else force)
        if i:
            force, moment = _turn(R, force), _turn(R, moment)
            frames[i - 1][2] = _add(frames[i - 1][2], force)
            frames[i - 1][3] = _add(frames[i - 1][3], moment, _cross(p, force))
    load = list(tau)
    for law, value, weights, constant, exponent, smoothing{field} in EFFECTS:
        states = (_dot(weights, x) for x in (q, dq, ddq, load))
        size = _effect(law, *states, constant, exponent, smoothing)
{warm}        for j, weight in enumerate(weights):
            tau[j] += weight * value * size
    return tau
'''

# Additional check of a model that says up to which speeds it was identified.
_FAST = """    for joint, (v, limit) in enumerate(zip(dq, SPEEDS)):
        if limit > 0.0 and abs(v) > {leaves} * limit:
            warn(f"joint {joint + 1} is faster than {leaves} x {limit:.3g}, where its friction was identified")
"""
# Additional part of a model whose friction follows temperature.
_WITH_TEMPERATURE = {
    "argument": ", temperature",
    "takes": ", temperature [degC]",
    "imports": "from warnings import warn\n",
    "field": ", warm",
    "check": """    if len(temperature) != len(JOINTS):
        raise ValueError(f"temperature has {len(temperature)} values: expected {len(JOINTS)}, one for each joint")
    for joint, (t, low, high) in enumerate(zip(temperature, *TEMPERATURES)):
        if low is None or not low - 1.0 <= t <= high + 1.0:  # the same text each time: it is shown once
            warn(f"joint {joint + 1} is outside {low} to {high} degC, where its friction was identified")
""",
    "warm": """        if warm is not None:  # per kelvin above 20 degC
            size *= temperature[warm] - 20.0
""",
}

_BODIES = "each a possible body"
_NOT_BODIES = "chosen so that the torque is right,\n# not meaningful link by link"
_LAW_WORDS = {
    LAW_ARMATURE: "armature", LAW_VISCOUS: "viscous", LAW_COULOMB: "coulomb", LAW_OFFSET: "offset",
    LAW_BREAKAWAY: "breakaway", LAW_QUADRATIC_ODD: "quadratic_odd", LAW_QUADRATIC_EVEN: "quadratic_even",
    LAW_CUBIC: "cubic", LAW_TANH: "tanh", LAW_DECAYING_VISCOUS: "decaying_viscous", LAW_SINE: "sine",
    LAW_COSINE: "cosine", LAW_LOAD: "load", LAW_COULOMB_TEMPERATURE: "coulomb", LAW_VISCOUS_TEMPERATURE: "viscous",
    LAW_BREAKAWAY_TEMPERATURE: "breakaway",
}  # fmt: skip


def to_python(model_file: ModelFile) -> str:
    """Return the source of a module with `torque(q, dq, ddq)`, with temperatures where friction follows them."""
    model, base = model_file.robot.model, model_file.base
    phi = base.phi(model_file.theta) if model_file.standard is None else model_file.standard
    seen = model_file.temperatures
    words = dict.fromkeys((*_WITH_TEMPERATURE, "range"), "")
    if seen is not None:
        lower, upper = seen.plain
        words = {
            **_WITH_TEMPERATURE,
            "range": f"# Per joint, what friction was identified at [degC].\nTEMPERATURES = {(lower, upper)!r}\n",
        }
    ranges, fast = model_file.ranges, {"fast": "", "ranges": ""}
    if ranges is not None:
        fast["fast"] = _FAST.replace("{leaves}", f"{LEAVES:g}")
        fast["ranges"] = f"\nIts {ranges.text(model)}; beyond that it warns."
        words["imports"] = "from warnings import warn\n"
        words["range"] += "# Per joint, the speed that friction was identified up to.\n"
        words["range"] += f"SPEEDS = {_numbers(ranges.speed)}\n"
    links = np.zeros((model.n, 10))
    effects: list[tuple[object, ...]] = []
    for c in range(len(base.standard)):
        law = int(base.standard.law[c])
        if law == LAW_LINK:
            links[base.standard.source[c] // 10, base.standard.source[c] % 10] = phi[c]
        elif phi[c] != 0.0:
            weights = _numbers(base.standard.motor[c])
            effect: tuple[object, ...] = (_LAW_WORDS[law], float(phi[c]), weights, *_numbers(base.standard.shape[c]))
            if seen is not None:
                effect += (int(base.standard.source[c]) if law in TEMPERATURE else None,)
            effects.append(effect)
    joints = [
        (*(_numbers(row[a:b]) for a, b in itertools.pairwise((0, 9, 18, 27, 30, 33, 36))), bool(row[36] > 0.5))
        for row in model.geometry
    ]
    document = model_file.document

    def block(rows: list[tuple[object, ...]]) -> str:
        return "[\n" + "".join(f"    {row!r},\n" for row in rows) + "]"

    return _PYTHON.format(
        robot=model.name, kind=document["kind"], method=plain_text(document["method"]),
        recording=plain_text(model_file.origin), verdict=document["verdict"], n=model.n,
        gravity=_numbers(model.gravity), joints=block(list(joints)),
        meaning=_NOT_BODIES if model_file.standard is None else _BODIES, links=block([_numbers(row) for row in links]),
        effects=block(list(effects)), **words, **fast,
    )  # fmt: skip


def _numbers(values: FloatArray) -> tuple[float, ...]:
    return tuple(float(v) for v in values)
