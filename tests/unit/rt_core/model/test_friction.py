"""Friction laws: their formulas as written, their columns, and what a robot file says of them."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from drivers.files.robots.file import RobotError, load_robot, robot_from_source
from rt_core.model.base import base_parameters
from rt_core.model.friction import LAW_LINK, Friction
from rt_core.model.parameters import standard_layout, standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import JointDynamics, RobotModel
from tests.lab.arms.simulated import random_arm

SPEEDS = np.concatenate((np.linspace(-2.0, 2.0, 41), [0.0, 1e-3, -1e-3, 0.03, -0.03]))


def values(n: int, seed: int = 0) -> JointDynamics:
    """Random values of everything; signs as they may be."""
    rng = np.random.default_rng([seed, 3])
    draw = {item.name: rng.uniform(0.5, 2.0, n) for item in fields(JointDynamics)}
    for name in ("stribeck_velocity", "tanh_velocity", "decay_velocity"):
        draw[name] = rng.uniform(0.03, 0.3, n)
    for name in ("offset", "quadratic_friction", "cubic_friction", "decaying_viscous", "cyclic_sine", "cyclic_cosine"):
        draw[name] *= rng.choice([-1.0, 1.0], n)
    draw["load_friction"] *= 0.1
    return JointDynamics(**draw)


def with_law(law: Friction, n: int = 3, seed: int = 0, *, coupled: bool = False) -> RobotModel:
    return replace(random_arm(n, 40 + seed, coupled=coupled), friction=law, dynamics=values(n, seed))


def sign(v: np.ndarray, eps: float) -> np.ndarray:
    return np.tanh(v / eps) if eps > 0.0 else np.sign(v)


def stribeck(d: JointDynamics, v: np.ndarray, eps: float, square: np.ndarray) -> np.ndarray:
    """DYN eq. 2 with the quadratic term's `square`."""
    level = d.coulomb + (d.breakaway - d.coulomb) * np.exp(-((v / d.stribeck_velocity) ** 2))
    return level * sign(v, eps) + d.viscous * v + d.quadratic_friction * square + d.cubic_friction * v**3


def written(law: Friction, d: JointDynamics, q: np.ndarray, v: np.ndarray, load: np.ndarray) -> np.ndarray:
    """The laws as the papers print them, (N, n)."""
    s = sign(v, law.smoothing)
    total = np.zeros_like(v)
    if law.law in ("coulomb_viscous", "coulomb_viscous_offset"):
        total = d.coulomb * s + d.viscous * v
    elif law.law == "stribeck":
        square = {"odd": v * np.abs(v), "even": v**2, "none": 0.0 * v}[law.quadratic]
        total = stribeck(d if law.cubic else replace(d, cubic_friction=0.0 * d.coulomb), v, law.smoothing, square)
    elif law.law == "harmonic_drive_input":  # HIT eq. 15
        decay = np.exp(-(np.abs(v / d.decay_velocity) ** law.delta))
        total = d.viscous * v + d.tanh_torque * np.tanh(v / d.tanh_velocity) + d.decaying_viscous * v * decay
        total = total + d.coulomb * s
    if law.law == "cyclic" or law.cyclic:  # HIT eq. 18
        total = total + d.cyclic_sine * np.sin(q) + d.cyclic_cosine * np.cos(q)
    if law.load:
        total = total + d.load_friction * np.abs(load) * s
    return total


LAWS = [
    Friction(law, quadratic=quadratic, cubic=cubic, delta=delta, smoothing=eps, load=load, cyclic=cyclic)  # type: ignore[arg-type]
    for law, quadratic, cubic, delta in (
        ("none", "odd", True, 1.0),
        ("coulomb_viscous", "odd", True, 1.0),
        ("coulomb_viscous_offset", "odd", True, 1.0),
        ("stribeck", "odd", True, 1.0),
        ("stribeck", "even", True, 1.0),
        ("stribeck", "none", False, 1.0),
        ("harmonic_drive_input", "odd", True, 1.0),
        ("harmonic_drive_input", "odd", True, 2.0),
        ("harmonic_drive_input", "odd", True, 0.7),
        ("cyclic", "odd", True, 1.0),
    )
    for eps in (0.0, 0.02)
    for load, cyclic in ((False, False), (True, True))
]
IDS = [
    f"{x.law}-{x.quadratic}-{x.delta:g}{'-smooth' if x.smoothing else ''}{'-load-cyclic' if x.load else ''}"
    for x in LAWS
]


@pytest.mark.parametrize("law", LAWS, ids=IDS)
def test_columns_times_values_are_the_law_as_written(law: Friction) -> None:
    model = with_law(law)
    rng = np.random.default_rng(1)
    v = np.stack([rng.permutation(SPEEDS) for _ in range(3)], axis=1)
    q, ddq, load = rng.normal(size=(3, *v.shape))
    layout = standard_layout(model)
    own = np.flatnonzero(layout.law != LAW_LINK)
    torque = regressor(model, layout, q, v, ddq, load=load)[:, :, own] @ standard_parameters(model, layout)[own]
    expected = written(law, model.dynamics, q, v, load) + model.dynamics.armature * ddq + model.dynamics.offset
    np.testing.assert_allclose(torque, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_a_joint_at_rest_has_no_friction_but_the_cyclic() -> None:
    model = with_law(Friction("stribeck", load=True, cyclic=True))
    layout = standard_layout(model)
    still = np.zeros((1, 3))
    q = np.array([[0.3, -0.4, 0.5]])
    Y = regressor(model, layout, q, still, still, load=np.ones((1, 3)))[0]
    live = {layout.names[c] for c in np.flatnonzero(np.abs(Y).any(axis=0)) if layout.law[c] != LAW_LINK}
    assert live == {f"{symbol}_{i}" for symbol in ("A1", "A2") for i in (1, 2, 3)} | {"off1", "off2", "off3"}


@pytest.mark.parametrize(
    "law",
    [Friction("stribeck"), Friction("stribeck", quadratic="even", load=True), Friction("harmonic_drive_input"),
     Friction("harmonic_drive_input", smoothing=0.01, cyclic=True)],
    ids=lambda law: law.law,
)  # fmt: skip
def test_the_base_parameters_do_not_depend_on_the_constants(law: Friction) -> None:
    known = with_law(law)
    base = base_parameters(known)
    fields_of = [field for _, field, _ in law.constants]
    unknown = replace(known, dynamics=replace(known.dynamics, **{field: np.zeros(3) for field in fields_of}))
    near = replace(known, dynamics=replace(known.dynamics, **{field: np.full(3, 1e-3) for field in fields_of}))
    for other in (unknown, near, replace(known, dynamics=None)):
        again = base_parameters(other)
        assert again.names == base.names
        np.testing.assert_array_equal(again.mapping, base.mapping)
    assert base.smallest_kept > 1e-4
    friction = {symbol + ("_1" if symbol[-1].isdigit() else "1") for symbol, _, _ in law.terms}
    assert {name for name in friction if name[:2] not in ("A1", "A2")} <= set(base.names)


def test_unknown_constants_switch_their_terms_off() -> None:
    for law, dead, whole in (
        (Friction("stribeck"), ("fb",), "fc"),
        (Friction("harmonic_drive_input"), ("C1", "C2"), "fc"),
    ):
        model = replace(with_law(law), dynamics=None)
        layout = standard_layout(model)
        Y = regressor(model, layout, *np.random.default_rng(0).normal(size=(3, 30, 3)))
        for c, name in enumerate(layout.names):
            if name.startswith(dead):
                assert not Y[:, :, c].any()
            if name == f"{whole}1":
                assert np.all(np.abs(Y[:, 0, c]) == 1.0)


def test_names_and_units_of_the_columns() -> None:
    friction = Friction("stribeck", load=True, cyclic=True)
    units = {"kv1": "N*m*s/rad", "kv2": "N*m*s^2/rad^2", "kv3": "N*m*s^3/rad^3", "k1": "1", "A1": "N*m", "A2": "N*m"}
    turning = standard_layout(replace(random_arm(2, 40, prismatic=0.0), friction=friction))
    found = dict(zip(turning.names, turning.units, strict=True))
    assert {symbol: found[f"{symbol}_2"] for symbol in units} == units
    assert (found["fc2"], found["fb2"]) == ("N*m", "N*m")
    sliding = standard_layout(replace(random_arm(2, 41, prismatic=1.0), friction=friction))
    found = dict(zip(sliding.names, sliding.units, strict=True))
    assert [found[x] for x in ("kv1_1", "kv2_1", "kv3_1", "fb1")] == ["N*s/m", "N*s^2/m^2", "N*s^3/m^3", "N"]
    coupled = standard_layout(with_law(friction, coupled=True)).names
    assert {"kv1m3", "kv2m3", "kv3m3", "fcm3", "fbm3"} <= set(coupled)
    assert [name for name in coupled if name.startswith("k1")] == ["k1_1", "k1_2", "k1_3"]  # a load is of a joint


@pytest.mark.parametrize(
    ("law", "keys"),
    [
        (Friction("stribeck", quadratic="even", cubic=False, smoothing=0.01),
         'friction_quadratic = "even"\nfriction_cubic = false\nfriction_smoothing = 0.01\n'),
        (Friction("harmonic_drive_input", delta=1.5, cyclic=True, load=True),
         "friction_delta = 1.5\nfriction_cyclic = true\nfriction_load = true\n"),
    ],
    ids=lambda x: getattr(x, "law", ""),
)  # fmt: skip
def test_a_robot_file_says_the_law_and_survives_its_source(law: Friction, keys: str, tmp_path: Path) -> None:
    d = values(1)
    given = "".join(f"{item.name} = {float(getattr(d, item.name)[0])!r}\n" for item in fields(JointDynamics))
    path = tmp_path / "x.toml"
    text = 'format = 1\nname = "x"\nkinematics = "mdh"\n' + f'[[joint]]\nname = "only"\nmass = 1.0\n{given}'
    path.write_text(text + f'[model]\nfriction = "{law.law}"\n{keys}')
    robot = load_robot(path)
    again = robot_from_source(robot.source)
    for file in (robot, again):
        assert file.model.friction == law
        for item in fields(JointDynamics):
            np.testing.assert_array_equal(getattr(file.model.dynamics, item.name), getattr(d, item.name))
    assert again.sha256 == robot.sha256
    path.write_text(text + '[model]\nfriction = "cyclic"\nfriction_delta = 2.0\n')
    with pytest.raises(RobotError, match='friction_delta: has no meaning with friction = "cyclic"'):
        load_robot(path)


def test_breakaway_left_out_equals_coulomb(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    head = 'format = 1\nname = "x"\nkinematics = "mdh"\n[model]\nfriction = "stribeck"\n'
    path.write_text(head + '[[joint]]\nname = "a"\ncoulomb = 3.0\n[[joint]]\nname = "b"\nbreakaway = 2.0\n')
    d = load_robot(path).model.dynamics
    assert (d.breakaway.tolist(), d.coulomb.tolist()) == ([3.0, 2.0], [3.0, 0.0])
