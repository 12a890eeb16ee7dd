"""Drives on a simulated arm: scales of all kinds of devices, cause and effect, faults of encoders and power."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from sim_backend.drive._cia402 import State
from sim_backend.drive.modes import CSP, CST, CSV
from sim_backend.errors import SimulationConfigError
from sim_backend.ethercat._axis import Mounting
from sim_backend.ethercat._communication import build_dictionary
from sim_backend.ethercat._machine import DriveFitting, Machine
from sim_backend.ethercat._profile import DeviceProfile, load_profile
from tests.lab.arms.simulated import random_arm, single_joint
from tests.lab.ethercat.slave_bench import OP, Bench

T = 1e-3
TURN = 2.0 * math.pi
#: Device, sign, offset [rad], gear ratio of each joint of the arm `space6`; None: the profile's own.
KINDS = [
    ("generic_servo", 1, 0.0, None), ("generic_servo", -1, 0.7, 160.0), ("generic_servo", 1, -2.0, None),
    ("harmonic_actuator", -1, 0.25, None), ("compact_csp", 1, 1.5, None), ("compact_csp", -1, -0.4, 80.0),
]  # fmt: skip


class Rig:
    """A machine and a master's hand on the objects of all drives."""

    def __init__(self, kinds: list[tuple[str, int, float, float | None]] = KINDS, **model: object) -> None:
        self.profiles: list[DeviceProfile] = [load_profile(name) for name, *_ in kinds]
        self.mountings = [Mounting(gear, sign, offset) for _, sign, offset, gear in kinds]
        self.dictionaries = [build_dictionary(profile) for profile in self.profiles]
        fittings = [
            DriveFitting(*parts) for parts in zip(self.profiles, self.dictionaries, self.mountings, strict=True)
        ]
        robot = model.pop("robot", None) or load_robot("space6").model
        self.machine = Machine(robot, fittings, **model)

    def get(self, k: int, index: int, subindex: int = 0) -> int:
        return int(self.dictionaries[k].entry(index, subindex).value)

    def set(self, k: int, index: int, value: int, subindex: int = 0) -> None:
        self.dictionaries[k].entry(index, subindex).value = value

    def run(self, cycles: int = 1) -> None:
        for _ in range(cycles):
            self.machine.cycle(T)

    def enable(self, mode: int = CSP) -> Rig:
        self.run(30)
        drives = range(len(self.dictionaries))
        for controlword in (0x06, 0x07, 0x0F):
            for k in drives:
                self.set(k, 0x6060, mode)
                self.set(k, 0x6040, controlword)
                self.set(k, 0x607A, self.get(k, 0x6064))
            self.run()
        self.run(60)
        assert [drive.state for drive in self.machine.drives] == [State.ENABLED] * len(drives)
        return self

    def gear(self, k: int) -> float:
        return self.mountings[k].gear_ratio or self.profiles[k].drive.gear_ratio

    def units_per_rad(self, k: int) -> float:
        position = self.profiles[k].drive.position
        return position.units_per_rev / TURN * (self.gear(k) if position.side == "motor" else 1.0)

    def target(self, k: int, q: float) -> int:
        return round((self.mountings[k].sign * q + self.mountings[k].offset_rad) * self.units_per_rad(k))

    def sweep(self, cycles: int, wave: Callable[[float], float]) -> None:
        start = self.machine.sample.true_q
        for i in range(1, cycles + 1):
            for k in range(len(self.dictionaries)):
                self.set(k, 0x607A, self.target(k, start[k] + wave(i * T)))
            self.run()


def test_what_drives_report_is_the_arms_truth_in_their_units() -> None:
    rig = Rig().enable()
    seen_torque = np.zeros(6)
    for _ in range(40):
        rig.sweep(25, lambda t: 0.02 * t)
        sample = rig.machine.sample
        for k, profile in enumerate(rig.profiles):
            sign, offset = rig.mountings[k].sign, rig.mountings[k].offset_rad
            constants, gear = profile.drive, rig.gear(k)
            angle = sign * sample.true_q[k] + offset  # the drive's own, on the joint side
            encoder = constants.encoder_counts_per_rev(constants.position.encoder)
            step = TURN / encoder / (gear if constants.position.encoder == "motor" else 1.0)
            unit = 1.0 / rig.units_per_rad(k)
            assert abs(rig.get(k, 0x6064) * unit - angle) <= 0.5 * (step + unit) * (1 + 1e-9)
            amperes = sign * sample.true_tau[k] / (constants.torque_constant_nm_per_a * gear)
            assert abs(rig.get(k, 0x6078) * 1e-3 * constants.rated_current_ma * 1e-3 - amperes) <= (
                0.5e-6 * constants.rated_current_ma * (1 + 1e-9)
            )
            seen_torque[k] = max(seen_torque[k], abs(amperes))
        # Generic servo: torque at the motor, velocity in units a second; actuator: torque behind the gear.
        for k in (0, 1, 2):
            motor = rig.mountings[k].sign * sample.true_tau[k] / rig.gear(k)
            assert rig.get(k, 0x6077) * 1e-3 * 1.27 == pytest.approx(motor, abs=0.64e-3)
            speed = rig.mountings[k].sign * sample.true_dq[k] * rig.gear(k) * 1_048_576 / TURN
            assert rig.get(k, 0x606C) == pytest.approx(speed, abs=0.51)
        assert rig.get(3, 0x6077) * 1e-3 * 40.0 == pytest.approx(-sample.true_tau[3], abs=0.021)
        motor_counts = (-sample.true_q[3] + 0.25) * 100.0 * 65_536 / TURN
        assert rig.get(3, 0x2240, 2) == pytest.approx(motor_counts, abs=0.51)
        assert rig.get(0, 0x2030) == round(sample.temperature[0])
        assert rig.get(3, 0x2250, 1) == round(10.0 * sample.temperature[3])
    assert np.all(seen_torque > 0.0)


def test_torque_and_velocity_commands_are_on_the_side_and_in_the_sense_of_the_drive() -> None:
    robot = single_joint("revolute", coulomb=0.0)
    for kind, rated in (("generic_servo", 1.27 * 101), ("harmonic_actuator", 40.0)):
        rig = Rig([(kind, -1, 0.3, None)], robot=robot, start=[0.0]).enable(CST)
        rig.set(0, 0x6071, 200)
        rig.set(0, 0x60B2, 50)
        rig.run(2)
        assert rig.machine.sample.true_tau[0] == pytest.approx(-0.25 * rated)
        rig.set(0, 0x6072, 100)
        rig.set(0, 0x6071, 900)
        rig.set(0, 0x60B2, 0)
        rig.run(3)
        assert rig.machine.sample.true_tau[0] == pytest.approx(-0.1 * rated)
        assert rig.get(0, 0x6041) >> 11 & 1
    rig = Rig([("generic_servo", -1, 0.3, None)], robot=robot, start=[0.0]).enable(CSV)
    rig.set(0, 0x60FF, round(0.5 * 101 * 1_048_576 / TURN))
    rig.run(1500)
    assert rig.machine.sample.true_dq[0] == pytest.approx(-0.5, abs=0.01)


def test_a_drive_that_knows_current_only_limits_its_torque_by_it() -> None:
    rig = Rig([("compact_csp", 1, 0.0, None)], robot=single_joint("revolute", mass=8.0), start=[0.0])
    rig.enable()
    rig.set(0, 0x6073, 500)
    rig.run(300)
    limit = 0.5 * 2.2 * 0.15 * 121
    assert limit < 8.0 * 9.81 * 0.5  # what it would need
    assert abs(rig.machine.sample.true_tau[0]) == pytest.approx(limit)
    assert abs(rig.get(0, 0x6078)) == 500


def test_an_encoder_that_jumps_moves_the_joint_back_or_trips_the_drive() -> None:
    rig = Rig().enable()
    before = rig.machine.sample.true_q[0]
    rig.machine.encoder_jump(0, 20_000)
    rig.run(600)
    step = 20_000 / rig.units_per_rad(0)
    assert rig.machine.sample.true_q[0] == pytest.approx(before - step, abs=0.3 * step)
    assert rig.machine.drives[0].state is State.ENABLED
    rig.machine.encoder_jump(0, 30_000_000)
    sent = []
    for _ in range(1200):
        rig.run()
        sent += [(k, emergency.code) for k, emergency in rig.machine.emergencies]
    assert sent == [(0, 0x8611)]
    assert rig.machine.drives[0].state is State.FAULT


def test_an_encoder_that_is_stuck_trips_the_drive_once_the_joint_should_move() -> None:
    rig = Rig().enable()
    rig.machine.stuck_encoder(2)
    reading = rig.get(2, 0x6064)
    rig.run(100)
    assert rig.machine.drives[2].state is State.ENABLED
    rig.sweep(600, lambda t: 0.3 * t)
    assert rig.get(2, 0x6064) == reading
    assert rig.get(2, 0x603F) == 0x8611
    assert [drive.state for k, drive in enumerate(rig.machine.drives) if k != 2] == [State.ENABLED] * 5
    rig.machine.stuck_encoder(2, False)
    rig.run()
    assert rig.get(2, 0x6064) == pytest.approx(rig.target(2, rig.machine.sample.true_q[2]), abs=1)


def test_a_stuck_encoder_does_not_move_the_joint_when_the_drive_starts() -> None:
    rig = Rig().enable()
    rig.machine.stuck_encoder(0)
    before = rig.machine.sample.true_q[0]
    rig.sweep(400, lambda t: 0.2 * t)
    rig.set(0, 0x6040, 0)
    rig.run(300)
    place = rig.machine.sample.true_q[0]
    assert place - before > 0.05
    rig.enable()
    rig.run(300)
    assert rig.machine.sample.true_q[0] == pytest.approx(place, abs=1e-3)
    rig.machine.power_off(0)
    rig.run(200)
    rig.machine.power_on(0)
    rig.run()
    stands = rig.machine.sample.true_q[0]
    assert rig.get(0, 0x6064) == pytest.approx(rig.target(0, stands), abs=1)  # the first reading after power-on
    rig.enable()
    rig.run(300)
    assert rig.machine.sample.true_q[0] == pytest.approx(stands, abs=1e-3)


def test_mains_safe_torque_off_and_faults_are_those_of_one_drive() -> None:
    rig = Rig().enable()
    rig.machine.mains(2, False)
    rig.machine.safe_torque_off(3)
    rig.machine.drive_fault(5, 0x2310)
    rig.run(1)
    assert {(k, e.code) for k, e in rig.machine.emergencies} == {(2, 0x3220), (3, 0x5441), (5, 0x2310)}
    rig.run(800)
    states = [drive.state for drive in rig.machine.drives]
    assert states == [State.FAULT if k in (2, 3, 5) else State.ENABLED for k in range(6)]
    assert rig.machine.sample.true_dq[3] == rig.machine.sample.true_dq[5] == 0.0
    assert rig.get(3, 0x60FD) >> 3 & 1
    rig.machine.mains(2, True)
    for controlword in (0x00, 0x80):
        rig.set(2, 0x6040, controlword)
        rig.run()
    assert rig.machine.drives[2].state is State.SWITCH_ON_DISABLED


def test_coupled_motors_report_their_own_positions() -> None:
    robot = random_arm(3, 1, coupled=True, prismatic=0.0)
    rig = Rig([("generic_servo", 1, 0.0, None)] * 3, robot=robot, start=[0.1, -0.2, 0.3])
    rig.run()
    x = robot.coupling @ [0.1, -0.2, 0.3]
    assert abs(x[2] - 0.3) > 0.01
    for k in range(3):
        assert rig.get(k, 0x6064) == pytest.approx(x[k] * 101 * 1_048_576 / TURN, abs=0.51)


def test_process_data_count_only_in_op_and_their_loss_is_an_emergency() -> None:
    bus = Bench()
    machine = Machine(single_joint("revolute"), [DriveFitting(bus.profile, bus.dictionary)])
    machine.connect([bus.slave])

    def run(cycles: int) -> None:
        for _ in range(cycles):
            machine.cycle(T)

    (drive,) = machine.drives
    bus.dictionary.entry(0x6040).value = 0x06
    run(40)
    assert drive.state is State.SWITCH_ON_DISABLED
    assert not int(bus.dictionary.entry(0x6041).value) >> 9 & 1
    bus.to_op()
    for controlword in (0x06, 0x07, 0x0F):
        bus.dictionary.entry(0x6040).value = controlword
        run(1)
    run(50)
    assert drive.state is State.ENABLED
    bus.slave.raise_al_error(0x001B, 4)
    bus.run(1)
    run(1)
    assert bus.dictionary.entry(0x603F).value == 0x7500
    assert bus.receive()[8:11] == b"\x00\x75\x11"
    run(800)
    assert drive.state is State.FAULT
    assert bus.request(OP)[0] & 0x10  # the error has not been acknowledged


def test_invalid_mountings_and_numbers_of_drives_are_refused() -> None:
    for values, message in (
        ({"sign": 2}, "sign is 2"),
        ({"gear_ratio": -100.0}, "gear_ratio is -100"),
        ({"offset_rad": math.nan}, "offset_rad"),
    ):
        with pytest.raises(SimulationConfigError, match=message):
            Mounting(**values)
    with pytest.raises(SimulationConfigError, match="has 6 joints, but there are 1 drives"):
        Rig([("generic_servo", 1, 0.0, None)])
    with pytest.raises(SimulationConfigError, match="0 controllers for 6 drives"):
        Rig().machine.connect([])
