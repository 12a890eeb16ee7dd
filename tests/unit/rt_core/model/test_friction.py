"""Friction laws: their formulas as written, their columns, and what the fit and the online core make of them."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from drivers.files.robots.file import RobotError, load_robot, robot_from_source
from rt_core.model.base import base_parameters
from rt_core.model.friction import LAW_ARMATURE, LAW_LINK, Friction, friction_effect, smooth_sign
from rt_core.model.parameters import standard_layout, standard_parameters
from rt_core.model.regressor import BLOCK, joint_effect, regressor, regressor_columns
from rt_core.model.robot import JointDynamics, RobotModel
from rt_core.online import OnlineEstimator, OnlineSettings
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings
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


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("law", LAWS, ids=IDS)
def test_columns_equal_a_slow_loop(law: Friction, coupled: bool) -> None:
    """Column by column and sample by sample, in motor coordinates; also a number of samples that fills no block."""
    model = with_law(law, coupled=coupled)
    layout = standard_layout(model)
    rng = np.random.default_rng(2)
    q, dq, ddq, load = rng.normal(size=(4, BLOCK + 5, 3))
    dq[::4] = 0.0
    Y = regressor_columns(model, layout, q, dq, ddq, load=load)
    for c in np.flatnonzero(layout.law != LAW_LINK):
        law_code, shape, motor = int(layout.law[c]), layout.shape[c], layout.motor[c]
        for k in range(q.shape[0]):
            state = [float(motor @ x[k]) for x in (q, dq, ddq, load)]
            unit = friction_effect(law_code, *shape, state[0], state[1], state[3])
            if law_code == LAW_ARMATURE:
                unit = state[2]
            np.testing.assert_allclose(Y[:, c, k], motor * unit, rtol=1e-13, atol=1e-15)
            single = joint_effect(law_code, shape, motor, q[k], dq[k], ddq[k], load[k])
            assert single == pytest.approx(unit, rel=1e-13, abs=1e-15)


def test_sign_and_smoothing() -> None:
    for v in SPEEDS:
        assert smooth_sign(float(v), 0.0) == np.sign(v)
        assert smooth_sign(float(v), 0.02) == pytest.approx(np.tanh(v / 0.02), rel=1e-15)
    sharp, soft = (with_law(Friction("stribeck", smoothing=eps)) for eps in (0.0, 1e-4))
    far = np.where(np.abs(SPEEDS) > 2e-3, SPEEDS, 0.5)[:, None] * np.ones(3)
    zero = np.zeros_like(far)
    one, other = (regressor(m, standard_layout(m), zero, far, zero) for m in (sharp, soft))
    np.testing.assert_allclose(one, other, atol=1e-12)  # far from zero smoothing is nothing


def test_a_joint_at_rest_has_no_friction_but_the_cyclic() -> None:
    model = with_law(Friction("stribeck", load=True, cyclic=True))
    layout = standard_layout(model)
    still = np.zeros((1, 3))
    q = np.array([[0.3, -0.4, 0.5]])
    Y = regressor(model, layout, q, still, still, load=np.ones((1, 3)))[0]
    live = {layout.names[c] for c in np.flatnonzero(np.abs(Y).any(axis=0)) if layout.law[c] != LAW_LINK}
    assert live == {f"{symbol}_{i}" for symbol in ("A1", "A2") for i in (1, 2, 3)} | {"off1", "off2", "off3"}


NAMES = {
    "none": {},
    "coulomb_viscous": {"fv2": "N*m*s/rad", "fc2": "N*m"},
    "coulomb_viscous_offset": {"fv2": "N*m*s/rad", "fc2": "N*m", "off2": "N*m"},
    "stribeck": {
        "kv1_2": "N*m*s/rad",
        "kv2_2": "N*m*s^2/rad^2",
        "kv3_2": "N*m*s^3/rad^3",
        "fc2": "N*m",
        "fb2": "N*m",
    },
    "harmonic_drive_input": {"fv2": "N*m*s/rad", "C1_2": "N*m", "C2_2": "N*m*s/rad", "fc2": "N*m"},
    "cyclic": {"A1_2": "N*m", "A2_2": "N*m"},
}


@pytest.mark.parametrize("name", NAMES)
def test_names_and_units_of_the_columns(name: str) -> None:
    arm = replace(random_arm(3, 40, prismatic=0.0), armature=False, offset=False)
    layout = standard_layout(replace(arm, friction=Friction(name)))  # type: ignore[arg-type]
    own = [(layout.names[c], layout.units[c]) for c in range(len(layout)) if layout.joint[c] == 1]
    assert own[:-10] == list(NAMES[name].items())
    assert len(set(layout.names)) == len(layout)
    extra = standard_layout(replace(arm, friction=Friction(name, load=True, cyclic=True)))  # type: ignore[arg-type]
    added = dict(zip(extra.names, extra.units, strict=True))
    assert (added["k1_2"], added["A1_2"], added["A2_2"]) == ("1", "N*m", "N*m")
    assert extra.has_load
    assert not layout.has_load


def test_a_slider_has_units_of_force() -> None:
    layout = standard_layout(replace(random_arm(2, 41, prismatic=1.0), friction=Friction("stribeck")))
    units = dict(zip(layout.names, layout.units, strict=True))
    assert [units[x] for x in ("kv1_1", "kv2_1", "kv3_1", "fb1")] == ["N*s/m", "N*s^2/m^2", "N*s^3/m^3", "N"]


def test_a_coupled_motor_has_columns_of_its_own_but_no_load() -> None:
    names = standard_layout(with_law(Friction("stribeck", load=True), coupled=True)).names
    assert {"kv1m3", "kv2m3", "kv3m3", "fcm3", "fbm3"} <= set(names)
    assert [name for name in names if name.startswith("k1")] == ["k1_1", "k1_2", "k1_3"]


@pytest.mark.parametrize(
    "law",
    [
        Friction("stribeck"),
        Friction("stribeck", quadratic="even", load=True),
        Friction("harmonic_drive_input"),
        Friction("harmonic_drive_input", smoothing=0.01, cyclic=True),
    ],
    ids=lambda law: law.law,
)
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


def test_a_load_column_needs_the_load() -> None:
    model = with_law(Friction("coulomb_viscous", load=True))
    layout = standard_layout(model)
    states = np.ones((3, 4, 3))
    with pytest.raises(ValueError, match="load torque of each joint"):
        regressor(model, layout, *states)
    load = np.array([[2.0, -3.0, 0.0]]) * np.ones((4, 1))
    states[1, :, 1] = -0.5
    Y = regressor(model, layout, *states, load=load)[0]
    column = {name: c for c, name in enumerate(layout.names)}
    assert (Y[0, column["k1_1"]], Y[1, column["k1_2"]], Y[2, column["k1_3"]]) == (2.0, -3.0, 0.0)


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


KEYS = {
    "coulomb_viscous": "",
    "coulomb_viscous_offset": "",
    "stribeck": 'friction_quadratic = "even"\nfriction_cubic = false\nfriction_smoothing = 0.01\n',
    "harmonic_drive_input": "friction_delta = 1.5\nfriction_cyclic = true\nfriction_load = true\n",
    "cyclic": "",
    "none": "",
}


@pytest.mark.parametrize("name", KEYS)
def test_a_robot_file_says_every_law_and_survives_its_source(name: str, tmp_path: Path) -> None:
    d = values(1)
    keys = "".join(f"{item.name} = {float(getattr(d, item.name)[0])!r}\n" for item in fields(JointDynamics))
    path = tmp_path / "x.toml"
    text = 'format = 1\nname = "x"\nkinematics = "mdh"\n' + f'[[joint]]\nname = "only"\nmass = 1.0\n{keys}'
    path.write_text(text + f'[model]\nfriction = "{name}"\n{KEYS[name]}')
    robot = load_robot(path)
    expected = {
        "stribeck": Friction("stribeck", quadratic="even", cubic=False, smoothing=0.01),
        "harmonic_drive_input": Friction("harmonic_drive_input", delta=1.5, cyclic=True, load=True),
    }.get(name, Friction(name))  # type: ignore[arg-type]
    again = robot_from_source(robot.source)
    for file in (robot, again):
        assert file.model.friction == expected
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


def run_online(
    seed: int, velocity: float, *, known: bool, min_velocity: tuple[float, ...] | None = None, seconds: float = 60.0
) -> tuple[OnlineEstimator, np.ndarray]:
    """Return an estimator after `seconds` of a Stribeck arm, with or without its constants, and the true parameters."""
    arm = random_arm(2, seed, prismatic=0.0)
    coulomb = np.array([4.0, 3.0])
    dynamics = replace(
        arm.dynamics,
        viscous=np.array([6.0, 4.0]),
        coulomb=coulomb,
        breakaway=1.8 * coulomb,
        stribeck_velocity=velocity * np.array([1.0, 1.2]),
        cubic_friction=np.array([0.8, 0.6]),
    )
    model = replace(arm, dynamics=dynamics, friction=Friction("stribeck", quadratic="none"))
    rate = 200.0
    settings = SimSettings(rate_hz=rate, seed=3, torque_noise=0.002)
    data = SimulatedArm(model, settings, MotionSettings(seed=4, candidates=8)).simulate(seconds)
    believed = model if known else replace(model, dynamics=replace(dynamics, stribeck_velocity=np.zeros(2)))
    online = OnlineSettings(update_hz=50.0, memory_s=60.0, min_velocity=min_velocity)
    estimator = OnlineEstimator(believed, online, rate)
    for k, t in enumerate(data.t):
        estimator.step(round(t * 1e9), k, data.channels["q"][k], data.channels["tau"][k])
    return estimator, estimator.base.theta(standard_parameters(model, estimator.base.standard))


@pytest.mark.soak
def test_online_with_the_right_constants_the_linear_part_is_found() -> None:
    z = []
    for seed in (20, 21, 34):
        estimator, truth = run_online(seed, 0.1, known=True)
        report, names = estimator.report(), estimator.base.names
        friction = [c for c, name in enumerate(names) if name.startswith(("kv", "fc", "fb"))]
        assert [names[c] for c in friction] == ["kv1_1", "kv3_1", "fc1", "fb1", "kv1_2", "kv3_2", "fc2", "fb2"]
        for c in friction:
            assert report.status[c] == "estimated", names[c]
            z.append(abs(report.theta[c] - truth[c]) / report.std[c])
            if names[c][:2] in ("fc", "fb"):
                assert report.std[c] < 0.1 * truth[c]
    assert max(z) < 3.0
    assert np.mean(np.array(z) < 1.96) > 0.75  # kv1, kv3 and fc of a joint err together: few independent figures


@pytest.mark.parametrize("seconds", [30.0, pytest.param(60.0, marks=pytest.mark.soak)])
def test_online_without_constants_breakaway_stays_unestimated(seconds: float) -> None:
    """With the Stribeck range masked the rest is right all the same, which the estimator cannot know."""
    estimator, truth = run_online(34, 0.05, known=False, min_velocity=(0.2, 0.2), seconds=seconds)
    report, names = estimator.report(), estimator.base.names
    for c, name in enumerate(names):
        if name.startswith("fb"):
            assert report.status[c] == "unestimated"
            assert np.isnan(report.validated[c])
            assert report.theta[c] == 0.0
            assert not report.excited[c]
        elif name.startswith(("kv", "fc")):
            assert report.status[c] == "unestimated"
            assert abs(report.theta[c] - truth[c]) < 2.5 * report.std[c]
