"""Exported models give the identified torque: as a Python module with nothing but Python, and as a URDF."""

import ast
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import mujoco
import numpy as np
import pinocchio as pin
import pytest
import yaml

from drivers.files.robots.file import IdentificationSettings, RobotFile, load_robot
from rt_core.elastic.arm import elastic_base
from rt_core.identification.preprocess import SignalSettings
from rt_core.model.base import base_parameters, link_torque
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.friction import LAW_LINK, Friction
from rt_core.model.inertia import from_pseudo_inertia, is_physical, pseudo_inertia
from rt_core.model.parameters import standard_parameters
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.model.urdf import UrdfError, chain_from_urdf
from rt_core.model.urdf_writer import urdf_from_model
from service.models import export_urdf
from service.models.document import ModelFile, ModelFileError, load_model
from service.models.export_code import Language, to_code
from service.models.export_urdf import joint_effects, possible_parameters, standard_from_base, to_mjcf, to_urdf
from tests.lab.arms.simulated import random_arm, twin
from tests.lab.command_line import thetad
from tests.lab.exported_c import c_torque
from tests.lab.exported_python import run_bare
from tests.lab.exported_st import st_torque

# joints, seed, share of prismatic joints, coupled transmission; gravity is tilted in all of them
ARMS = [(2, 2, 1.0, False), (4, 3, 0.5, False), (7, 5, 0.3, True)]
STATES = 40


def model_file(model: RobotModel, theta: np.ndarray | None = None, **document: Any) -> ModelFile:
    """A model file of `theta`, by default the truth."""
    base = base_parameters(model)
    theta = base.theta(standard_parameters(model, base.standard)) if theta is None else theta
    robot = RobotFile(model, IdentificationSettings(), "0" * 64, None, {})
    content = {"kind": "batch", "method": "wls", "verdict": "ok", "data": {"recording": "r.mcap"}} | document
    return ModelFile(Path("m.yaml"), robot, base, theta, np.eye(theta.size), SignalSettings(), {"robot": {}, **content})


def identified(model: RobotModel, seed: int, size: float = 0.05) -> ModelFile:
    """A model whose every parameter is somewhat off the truth, as after an identification."""
    exact = model_file(model)
    noise = np.random.default_rng(seed).normal(size=exact.theta.size)
    return model_file(model, exact.theta * (1.0 + size * noise) + 0.02 * size * noise)


def random_states(model: RobotModel, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (STATES, model.n)
    return rng.uniform(-3.0, 3.0, shape), rng.normal(0.0, 2.0, shape), rng.normal(0.0, 5.0, shape)


def expected(model_file: ModelFile, states: tuple[np.ndarray, ...]) -> np.ndarray:
    Y = regressor(model_file.robot.model, model_file.base.layout, *states)
    return np.asarray(Y @ model_file.theta)


def true_torque(model: RobotModel, states: tuple[np.ndarray, ...]) -> np.ndarray:
    """Pinocchio's rigid torque plus the joints' effects, written out."""
    pinned = twin(model)
    store = pinned.createData()
    rigid = np.array([pin.rnea(pinned, store, *state) for state in zip(*states, strict=True)])
    _, dq, ddq = states
    C, d = model.coupling, model.dynamics
    at_motor = d.armature * (ddq @ C.T) + d.viscous * (dq @ C.T) + d.coulomb * np.sign(dq @ C.T)
    return np.asarray(rigid + at_motor @ C + d.offset)


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max())


def check_code(found: ModelFile, states: tuple[np.ndarray, ...], wanted: np.ndarray) -> None:
    """Assert that a model's exports as code, each of them run, give this torque."""
    close(run_bare(to_code(found, "python"), states), wanted)
    close(c_torque(to_code(found, "c"), *states)[0], wanted)
    close(st_torque(to_code(found, "st"), *states)[0], wanted)
    module: dict[str, Any] = {}
    exec(to_code(found, "casadi"), module)
    rows = list(zip(*states, strict=True))
    close(np.array([module["torque"](*row) for row in rows])[..., 0], wanted)
    close(np.array([module["regressor"](*row) for row in rows]) @ module["THETA"], wanted)


@pytest.mark.parametrize(("n", "seed", "prismatic", "coupled"), ARMS)
def test_code_has_the_torque(n: int, seed: int, prismatic: float, coupled: bool) -> None:
    model = random_arm(n, seed, prismatic=prismatic, coupled=coupled)
    q, dq, ddq = random_states(model, seed)
    dq[-5:] = ddq[-5:] = 0.0  # it stands
    states = (q, dq, ddq)
    exact, off = model_file(model), identified(model, seed)
    check_code(exact, states, true_torque(model, states))
    check_code(off, states, expected(off, states))


@pytest.mark.parametrize(
    "friction",
    [Friction("stribeck", load=True, cyclic=True), Friction("stribeck", "even", cubic=False, smoothing=0.1),
     Friction("harmonic_drive_input", delta=1.5, smoothing=0.05, load=True)],
)  # fmt: skip
def test_code_has_all_laws_of_friction(friction: Friction) -> None:
    model, rng = random_arm(3, 4), np.random.default_rng(1)
    names = {field for _, _, field in friction.terms} | {field for _, field, _ in friction.constants}
    dynamics = replace(model.dynamics, **{name: rng.uniform(0.5, 2.0, 3) for name in names})
    found = model_file(replace(model, friction=friction, dynamics=dynamics))
    states = random_states(found.robot.model)
    load = link_torque(found.robot.model, found.base, found.theta, *states) if friction.load else None
    wanted = regressor(found.robot.model, found.base.layout, *states, load=load) @ found.theta
    check_code(found, states, wanted)
    consistent = replace(found, standard=standard_parameters(found.robot.model, found.base.standard))
    close(run_bare(to_code(consistent, "python"), states), wanted)  # also where friction follows the load


def full_parameters(found: ModelFile) -> np.ndarray:
    """Standard parameters with the torque of a model, of possible bodies where there are any."""
    phi, distance = possible_parameters(found)
    return standard_from_base(found.robot.model, found.base, found.theta) if distance else phi


def links_of(found: ModelFile, phi: np.ndarray) -> np.ndarray:
    """(n, 10) link parameters in standard parameters (P,)."""
    standard = found.base.standard
    links = np.zeros((found.robot.model.n, 10))
    for c in np.flatnonzero(standard.law == LAW_LINK):
        links[standard.source[c] // 10, standard.source[c] % 10] = phi[c]
    return links


def urdf_torque(text: str, model: RobotModel, states: tuple[np.ndarray, ...]) -> np.ndarray:
    """Torque of a URDF in Pinocchio."""
    pinned = pin.buildModelFromXML(text)
    pinned.gravity = pin.Motion(np.array(model.gravity), np.zeros(3))
    store = pinned.createData()
    assert [j for j in range(model.n) if pinned.joints[j + 1].nq == 2] == []  # no continuous joint
    return np.array([pin.rnea(pinned, store, *state) for state in zip(*states, strict=True)])


def beside_links(found: ModelFile, states: tuple[np.ndarray, ...]) -> np.ndarray:
    """Torque of what a model has beside its links."""
    extra = found.base.standard.law != LAW_LINK
    Y = regressor(found.robot.model, found.base.standard, *states)
    return np.asarray(Y[:, :, extra] @ full_parameters(found)[extra])


def check_urdf(found: ModelFile, folder: Path, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    """Assert that the URDF loads to the same torque, here and in Pinocchio; links as read, and warnings."""
    model = found.robot.model
    text, warnings = to_urdf(found, allow_impossible=True)
    states = random_states(model, seed)
    phi = full_parameters(found)
    close(found.base.mapping @ phi, found.theta)
    added, wanted = beside_links(found, states), expected(found, states)
    close(urdf_torque(text, model, states) + added, wanted)

    (folder / "arm.urdf").write_text(text)
    loaded = load_robot(folder / "arm.urdf").model
    assert [j.name for j in loaded.joints] == [j.name for j in model.joints]
    close(inverse_dynamics(loaded.geometry, model.gravity, loaded.inertial, *states) + added, wanted)

    effects = joint_effects(model, found.base, phi)
    np.testing.assert_allclose(loaded.dynamics.viscous, np.maximum(effects.viscous, 0.0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(loaded.dynamics.coulomb, np.maximum(effects.coulomb, 0.0), rtol=1e-12, atol=1e-12)
    negative = np.count_nonzero(effects.viscous < 0.0) + np.count_nonzero(effects.coulomb < 0.0)
    assert sum("friction is -" in warning for warning in warnings) == negative
    return np.asarray(loaded.inertial), warnings


@pytest.mark.parametrize(("n", "seed", "prismatic", "coupled"), ARMS)
def test_urdf(n: int, seed: int, prismatic: float, coupled: bool, tmp_path: Path) -> None:
    model = random_arm(n, seed, prismatic=prismatic, coupled=coupled)
    for found in (model_file(model), identified(model, seed)):
        check_urdf(found, tmp_path, seed)


@pytest.mark.parametrize(("n", "seed", "prismatic", "coupled"), ARMS)
def test_mujoco_has_the_same_torque(n: int, seed: int, prismatic: float, coupled: bool) -> None:
    model = random_arm(n, seed, prismatic=prismatic, coupled=coupled)
    text, warnings = to_mjcf(model_file(model))
    assert warnings == []
    assert "not in this file: off1 = " in text
    loaded = mujoco.MjModel.from_xml_string(text)
    assert loaded.ntendon == np.count_nonzero(np.count_nonzero(model.coupling, axis=1) > 1)
    lost = np.concatenate((loaded.dof_frictionloss, loaded.tendon_frictionloss))
    np.testing.assert_allclose(np.sort(lost[lost > 0.0]), np.sort(model.dynamics.coulomb))
    loaded.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_FRICTIONLOSS | mujoco.mjtDisableBit.mjDSBL_LIMIT
    store = mujoco.MjData(loaded)
    for q, dq, ddq in zip(*random_states(model), strict=True):
        store.qpos, store.qvel, store.qacc = q, dq, ddq
        mujoco.mj_inverse(loaded, store)
        C = model.coupling
        friction = (model.dynamics.coulomb * np.sign(C @ dq)) @ C + model.dynamics.offset
        wanted = true_torque(model, (q[None], dq[None], ddq[None]))[0]
        np.testing.assert_allclose(store.qfrc_inverse + friction, wanted, rtol=1e-7, atol=1e-7 * np.abs(wanted).max())
        np.testing.assert_allclose(store.site("tip").xpos, tip_of(model, q), atol=1e-9)


@pytest.mark.parametrize(("n", "seed", "prismatic", "coupled"), ARMS)
def test_sdf_and_ros2_describe_the_arm_of_the_urdf(n: int, seed: int, prismatic: float, coupled: bool) -> None:
    """Poses, axes and inertials mean the same in SDF as in URDF, where a joint's frame is its child's."""
    found = model_file(random_arm(n, seed, prismatic=prismatic, coupled=coupled))
    urdf, warnings = to_urdf(found)
    assert export_urdf.to_sdf(found)[1] == warnings == []
    (parameters,) = yaml.safe_load(export_urdf.to_ros2(found)[0])["/**"].values()
    assert parameters["robot_description"] == urdf
    gravity = [float(g) for g in found.robot.model.gravity]
    assert parameters["kdl"] == {"root": "base_link", "tip": "tip_link", "gravity": gravity}
    (sdf,) = ET.fromstring(export_urdf.to_sdf(found)[0]).findall("model")
    assert [sdf.findtext(f"joint[@type='fixed']/{end}") for end in ("parent", "child")] == ["world", "base_link"]
    *joints, last = ET.fromstring(urdf).findall("joint")
    links = {link.get("name"): link for link in ET.fromstring(urdf).findall("link")}
    for joint in joints:
        parent, child = (joint.find(end).get("link") for end in ("parent", "child"))
        link, body = sdf.find(f"link[@name='{child}']"), links[child].find("inertial")
        assert link.find("pose").attrib == {"relative_to": parent}
        wanted = [joint.get("type"), parent, child, joint.find("axis").get("xyz"), place(joint), place(body)]
        wanted += [body.find("mass").get("value"), *body.find("inertia").attrib.values()]
        wanted += [*joint.find("dynamics").attrib.values(), joint.find("limit").get("lower")]
        same = sdf.find(f"joint[@name='{joint.get('name')}']")
        written = [same.get("type"), *(same.findtext(tag) for tag in ("parent", "child", "axis/xyz"))]
        written += [link.findtext("pose"), link.findtext("inertial/pose"), link.findtext("inertial/mass")]
        written += [value.text for value in (*link.find("inertial/inertia"), *same.find("axis/dynamics"))]
        assert [*written, same.findtext("axis/limit/lower")] == wanted
    assert sdf.find("frame").get("attached_to") == last.find("parent").get("link")
    assert sdf.findtext("frame/pose") == place(last)


def place(element: ET.Element) -> str:
    return " ".join(element.find("origin").get(key) for key in ("xyz", "rpy"))


def test_springs_go_to_mujoco_and_are_named_elsewhere() -> None:
    """A joint without a stiffness stays rigid; each motor has its own motion, and a spring between it and the link."""
    model, stiffness = random_arm(4, 3, prismatic=0.5), [2e3, None, 5e4, 1e3]
    springs = [
        {"joint": joint.name, "unit": "N", "stiffness": {"value": k}, "stiffness_cubic": 1.5}
        for joint, k in zip(model.joints, stiffness, strict=True)
    ]
    base, rigid = elastic_base(model), model_file(model)
    theta = base.theta(standard_parameters(model, base.standard))
    found = replace(model_file(model, elastic=springs), base=base, theta=theta, covariance=np.eye(theta.size))
    close(found.rigid[1], rigid.theta)
    states = random_states(model)
    close(expected(found, states), expected(rigid, states))
    assert len(base) > len(rigid.base)
    for text in (*(to_code(found, language) for language in get_args(Language)), to_urdf(found)[0]):
        assert "joints are elastic, here links move as motors do" in text
        assert f"stiffness without an interval: {model.joints[0].name} 2000 N" in text
    hidden = replace(found, document=found.document | {"parameters": [{"name": "Ia3", "value": None}]})
    assert [f'"{joint.name}_spring"' in to_mjcf(hidden)[0] for joint in model.joints] == [True, False, False, True]
    loaded = mujoco.MjModel.from_xml_string(to_mjcf(found)[0])
    loaded.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_FRICTIONLOSS | mujoco.mjtDisableBit.mjDSBL_LIMIT
    store, soft = mujoco.MjData(loaded), np.array([k is not None for k in stiffness])
    motor = np.array([loaded.joint(joint.name).id for joint in model.joints])
    behind = np.array([loaded.joint(f"{model.joints[j].name}_spring").id for j in np.flatnonzero(soft)])
    assert loaded.njnt == motor.size + behind.size
    k = np.array([value for value in stiffness if value])
    for moved in zip(*states, strict=True):
        bent = [0.1 * x[soft] for x in moved]
        for into, x, s in zip((store.qpos, store.qvel, store.qacc), moved, bent, strict=True):
            into[motor], into[behind] = x, s
        link = [x + np.where(soft, 0.1 * x, 0.0) for x in moved]
        mujoco.mj_inverse(loaded, store)
        at_link, at_motor = (regressor(model, base.layout, *(x[None] for x in at))[0] * theta for at in (link, moved))
        links = at_link[:, base.layout.is_link].sum(axis=1)
        wanted = links + at_motor[:, ~base.layout.is_link].sum(axis=1)
        lost = model.dynamics.coulomb * np.sign(moved[1]) + model.dynamics.offset
        torque, near = store.qfrc_inverse, {"rtol": 1e-7, "atol": 1e-7 * np.abs(wanted).max()}
        np.testing.assert_allclose(torque[motor] + lost, wanted, **near)
        np.testing.assert_allclose(torque[behind], links[soft] + k * bent[0], **near)


def tip_of(model: RobotModel, q: np.ndarray) -> np.ndarray:
    pinned = twin(model)
    store = pinned.createData()
    pin.forwardKinematics(pinned, store, q)
    return np.asarray(store.oMi[model.n].act(model.tip_translation))


@pytest.mark.parametrize(("n", "seed", "prismatic", "coupled"), ARMS)
def test_possible_bodies_are_found_where_there_are_any(
    n: int, seed: int, prismatic: float, coupled: bool, tmp_path: Path
) -> None:
    """The base parameters of an arm that exists, on top of a robot file that is off: all links are bodies again."""
    truth = random_arm(n, seed, prismatic=prismatic, coupled=coupled)
    exact = model_file(truth)
    rng = np.random.default_rng(seed)
    off = np.array([from_pseudo_inertia(T @ pseudo_inertia(link) @ T.T) for link, T in zip(
        truth.inertial, np.eye(4) + 0.1 * rng.normal(size=(n, 4, 4)), strict=True)])  # fmt: skip
    found = model_file(replace(truth, inertial=off), exact.theta)
    np.testing.assert_allclose(found.base.mapping, exact.base.mapping)
    assert possible_parameters(found)[1] == 0.0
    links, warnings = check_urdf(found, tmp_path, seed)
    assert all(is_physical(link) for link in links)
    assert warnings == []


def test_a_consistent_model_is_written_as_it_is(tmp_path: Path) -> None:
    """Not the set nearest to the robot file, but the one in the model file."""
    model = random_arm(5, 6, prismatic=0.2)
    exact = model_file(model)
    truth = standard_parameters(model, exact.base.standard)
    other = replace(exact, robot=replace(exact.robot, model=replace(model, inertial=2.0 * model.inertial)))
    found = replace(other, standard=truth)
    links, warnings = check_urdf(found, tmp_path)
    np.testing.assert_allclose(links, model.inertial, rtol=1e-9, atol=1e-12)
    assert warnings == []
    states = random_states(model)
    source = to_code(found, "python")
    close(run_bare(source, states), expected(found, states))
    assert "each a possible body" in source
    assert "not meaningful link by link" in to_code(exact, "python")
    with pytest.raises(ModelFileError, match="standard does not belong to theta"):
        to_urdf(replace(found, standard=1.001 * truth))


def test_a_disturbed_model_is_named() -> None:
    model = random_arm(5, 6, prismatic=0.0)
    wild = identified(model, 3, size=2.0)
    text, warnings = to_urdf(wild, allow_impossible=True)
    assert len(ET.fromstring(text).findall("link/inertial")) == model.n
    near, told = to_urdf(wild)
    assert chain_from_urdf(near).unphysical == ()
    of = re.fullmatch(
        r".*the nearest are written, (\S+) standard deviations away, whose torque is (\S+) % off.*", told[0]
    )
    phi, distance = possible_parameters(wild)
    assert float(of[1]) == pytest.approx(distance, rel=0.1)
    states = random_states(model)
    off = regressor(model, wild.base.standard, *states) @ phi - expected(wild, states)
    np.testing.assert_allclose(chain_from_urdf(near).inertial, links_of(wild, phi), rtol=1e-9, atol=1e-9)
    assert np.linalg.norm(off) == pytest.approx(float(of[2]) / 100.0 * np.linalg.norm(expected(wild, states)), rel=0.5)
    links = links_of(wild, standard_from_base(model, wild.base, wild.theta))
    bad = [joint.name for joint, link in zip(model.joints, links, strict=True) if not is_physical(link)]
    assert bad
    of_links = [warning for warning in warnings if warning.startswith("link")]
    for name, warning in zip(bad, of_links, strict=True):
        assert f"({name})" in warning
        assert "not physically possible" in warning
        assert "--method physical" in warning


@pytest.mark.parametrize(("n", "inertial"), [(4, None), (1, "zeros")])
def test_an_arm_without_link_figures_gets_an_assumed_mass(n: int, inertial: str | None) -> None:
    truth = random_arm(n, 9, prismatic=0.0)
    model = replace(truth, inertial=None if inertial is None else np.zeros((n, 10)), dynamics=None)
    found = model_file(model, identified(truth, 9).theta)
    text, _ = to_urdf(found)
    masses = [float(m.get("value", "nan")) for m in ET.fromstring(text).findall("link/inertial/mass")]
    assert len(masses) == n
    assert min(masses) > 0.1
    states = random_states(model)
    close(urdf_torque(text, model, states) + beside_links(found, states), expected(found, states))


@pytest.mark.parametrize(
    "name", ['x""" + open("/tmp/x") + """', "a\\", "--> <robot/>", "a---b----", "line\nbreak", "\x00\x1b[31m", "{n}"]
)
def test_names_from_outside_do_no_harm(name: str) -> None:
    model = random_arm(2, 11)
    found = model_file(model, data={"recording": name}, method=name)
    c_torque(to_code(found, "c"), *random_states(model))
    st_torque(to_code(found, "st"), *random_states(model))
    ast.parse(to_code(found, "casadi"))
    source = to_code(found, "python")
    tree = ast.parse(source)
    assert all(isinstance(node, ast.FunctionDef | ast.Assign | ast.ImportFrom | ast.Expr) for node in tree.body)
    assert [type(node) for node in tree.body if isinstance(node, ast.Expr)] == [ast.Expr]
    states = random_states(model)
    close(run_bare(source, states), expected(found, states))
    text, _ = to_urdf(found)
    assert len(ET.fromstring(text).findall("joint")) == 3
    assert pin.buildModelFromXML(text).nv == 2


def test_commands(space6_model: Path, tmp_path: Path) -> None:
    model = load_model(space6_model)
    states = random_states(model.robot.model)
    done = thetad("models", "export", space6_model, "--format", "python")
    assert (done.code, done.err) == (0, "")
    close(run_bare(done.out, states), expected(model, states))

    done = thetad("models", "export", space6_model, "--format", "urdf", "-o", tmp_path / "a" / "arm.urdf")
    assert (done.code, done.out) == (0, "")
    text, warnings = to_urdf(model)
    assert (tmp_path / "a" / "arm.urdf").read_text() == text
    assert done.err.splitlines() == [f"thetad: warning: {warning}" for warning in warnings]
    done = thetad("models", "export", space6_model, "--format", "urdf", "--allow-impossible")
    assert (done.code, done.out) == (0, to_urdf(model, allow_impossible=True)[0])
    assert "Ia1 = " in text
    for kind, describe in (("mjcf", to_mjcf), ("sdf", export_urdf.to_sdf), ("ros2", export_urdf.to_ros2)):
        assert thetad("models", "export", space6_model, "--format", kind).out == describe(model)[0]
    for language in ("c", "st", "casadi"):
        assert thetad("models", "export", space6_model, "--format", language).out == to_code(model, language)

    assert thetad("models", "export", space6_model, "--format", "yaml").out == space6_model.read_text()
    thetad("models", "export", space6_model, "--format", "python", "-o", space6_model / "x.py").refused("x.py")
    own = Path("configs/robots/space6.urdf")
    done = thetad("models", "export", space6_model, "--format", "urdf", "--into", own)
    assert (done.code, done.out) == (0, to_urdf(model, own.read_text())[0])
    assert "Geometry and limits of the simulated arm" in done.out
    thetad("models", "export", space6_model, "--format", "python", "--into", own).refused("are for --format urdf")
    thetad("models", "export", space6_model, "--format", "urdf", "--into", tmp_path / "x.urdf").refused("No such file")
    assert thetad("models", "export", space6_model, "--format", "matlab").code == 2

    found = thetad("models", "show", space6_model, "--json").json
    assert {"theta", "covariance"}.isdisjoint(found)
    shown = thetad("models", "show", space6_model).out
    for row in found["parameters"]:
        assert row["expression"] in shown
    assert found["data"]["sha256"] in shown


TOOL = (
    '<link name="tool"><inertial><origin xyz="0 0 0.1"/><mass value="0.2"/>'
    '<inertia ixx="1e-3" ixy="0" iyy="1e-3" ixz="0" iyz="0" izz="1e-3"/></inertial></link>'
    '<joint name="mount" type="fixed"><parent link="tip_link"/><child link="tool"/></joint>'
)


FINGER = (
    '<link name="finger"/><link name="thumb"/>'
    '<joint name="close" type="prismatic"><parent link="tool"/><child link="finger"/></joint>'
    '<joint name="open" type="prismatic"><parent link="tool"/><child link="thumb"/></joint>'
)


@pytest.mark.parametrize(("n", "seed", "prismatic"), [(2, 2, 1.0), (5, 3, 0.3)])
def test_an_own_urdf_keeps_all_but_inertials_and_friction(n: int, seed: int, prismatic: float, tmp_path: Path) -> None:
    model = random_arm(n, seed, prismatic=prismatic)
    found = model_file(model)
    own = urdf_from_model(model, np.ones(model.inertial.shape) * [1.0, 0, 0, 0, 1, 0, 1, 0, 0, 1])
    own = own.replace("<axis", "<!-- a > b -->\n  <axis").replace("</robot>", f"<material name='grün'/>{TOOL}</robot>")
    own = re.sub(r'(?s)(<link name="[^"]*_link")>\s*<inertial>.*?</inertial>\s*</link>', r"\1/>", own, count=1)
    text, warnings = to_urdf(found, own)
    assert warnings == []
    chain, phi = chain_from_urdf(text, tip_link="tip_link"), full_parameters(found)
    links, effects = links_of(found, phi), joint_effects(model, found.base, phi)
    np.testing.assert_allclose(chain.inertial, links, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([chain.dynamics.viscous, chain.dynamics.coulomb], [effects.viscous, effects.coulomb])
    states = random_states(model)
    close(urdf_torque(text, model, states) + beside_links(found, states), expected(found, states))
    assert TOOL in text
    assert without_parameters(own) == without_parameters(text)
    again, _ = to_urdf(found, text)
    assert re.sub(r"<!-- identified by.*?-->\n", "", again) == re.sub(r"<!-- identified by.*?-->\n", "", text)
    assert text.count("identified by thetad") == again.count("identified by thetad") == 1
    twice = own.replace("</inertial>", "</inertial><inertial><mass value='7'/></inertial>", 1) + "<!-- </robot> -->"
    odd = to_urdf(found, "\ufeff" + twice.replace("\n", "\r\n"))[0]
    assert odd.count("\r\n") == odd.count("\n")
    assert odd.endswith("</robot>\r\n<!-- </robot> -->")
    np.testing.assert_allclose(chain_from_urdf(odd, tip_link="tip_link").inertial, links, rtol=1e-9, atol=1e-12)
    finger = own.replace(TOOL, TOOL + FINGER)
    assert chain_from_urdf(to_urdf(found, finger)[0], tip_link="tip_link").joints[-1].name == model.joints[-1].name
    heavy = own.replace('value="0.2"', 'value="200"')
    other = own.replace(f'"{model.joints[0].name}"', '"other"')
    moved = re.sub(r'xyz="\S+', 'xyz="9.5', own, count=1)
    for bad, message in ((heavy, "more inertia than"), (other, "its joints are"), (moved, "placed differently")):
        with pytest.raises(UrdfError, match=message):
            to_urdf(found, bad)


def without_parameters(urdf: str) -> str:
    root = ET.fromstring(urdf.replace(TOOL, ""), ET.XMLParser(target=ET.TreeBuilder(insert_comments=True)))
    for element in root.iter():
        for child in list(element):
            if child.tag in ("inertial", "dynamics") or (child.text or "").startswith(" identified by"):
                element.remove(child)
    return ET.canonicalize(ET.tostring(root), strip_text=True, with_comments=True)


def test_physical_model_from_a_recording(arm7_physical: Path, tmp_path: Path) -> None:
    """The URDF of a consistent fit: possible links only, no warning, the torque of the model."""
    done = thetad("models", "export", arm7_physical, "--format", "urdf", "-o", tmp_path / "arm7.urdf")
    assert (done.code, done.err) == (0, "")
    model = load_model(arm7_physical)
    links, warnings = check_urdf(model, tmp_path)
    assert (tmp_path / "arm7.urdf").read_text() == to_urdf(model)[0]
    assert warnings == []
    assert all(is_physical(link) for link in links)
    np.testing.assert_allclose(links, links_of(model, model.standard), rtol=1e-9, atol=1e-12)
