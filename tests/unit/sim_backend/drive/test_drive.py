"""The CiA 402 drive: state machine, modes, stops, supervision; on the objects of a shipped device."""

from itertools import pairwise

import pytest

from sim_backend.canopen.dictionary import SdoAbort
from sim_backend.drive._cia402 import State
from sim_backend.drive.modes import BRAKED, CSP, CST, CSV, OFF
from tests.lab.ethercat.drive_bench import PERIOD_S, Bench

SHUTDOWN, SWITCH_ON, ENABLE, DISABLE_VOLTAGE, QUICK_STOP, RESET = 0x06, 0x07, 0x0F, 0x00, 0x02, 0x80
#: Speed limit 0x6080 of the device, 5000 1/min [units/s].
TOP = 5000.0 / 60.0 * 1_048_576
SPEED, DECELERATION = 2e6, 10_000_000
WAY = SPEED**2 / (2 * DECELERATION)
D, R, S, E, Q, F = (
    State.SWITCH_ON_DISABLED, State.READY, State.SWITCHED_ON, State.ENABLED, State.QUICK_STOP, State.FAULT,
)  # fmt: skip
#: Where each command leads from each state in one cycle (IEC 61800-7-201, table "Transitions"), options at 0.
NEXT = {
    D: {SHUTDOWN: R, SWITCH_ON: D, ENABLE: D, DISABLE_VOLTAGE: D, QUICK_STOP: D, RESET: D},
    R: {SHUTDOWN: R, SWITCH_ON: S, ENABLE: S, DISABLE_VOLTAGE: D, QUICK_STOP: D, RESET: R},
    S: {SHUTDOWN: R, SWITCH_ON: S, ENABLE: E, DISABLE_VOLTAGE: D, QUICK_STOP: D, RESET: S},
    E: {SHUTDOWN: R, SWITCH_ON: S, ENABLE: E, DISABLE_VOLTAGE: D, QUICK_STOP: Q, RESET: E},
    Q: {SHUTDOWN: Q, SWITCH_ON: Q, ENABLE: E, DISABLE_VOLTAGE: D, QUICK_STOP: Q, RESET: Q},
    F: {SHUTDOWN: F, SWITCH_ON: F, ENABLE: F, DISABLE_VOLTAGE: F, QUICK_STOP: F, RESET: D},
}


def in_state(state: State) -> Bench:
    bench = Bench()
    bench.set(0x605A, 6)  # quick stop stays
    bench.set(0x605B, 0)
    bench.set(0x605C, 0)
    bench.run(40)
    if state is F:
        bench.drive.fault(0x2310)
    way = {D: [], R: [SHUTDOWN], S: [SHUTDOWN, SWITCH_ON], F: []}
    for controlword in way.get(state, [SHUTDOWN, SWITCH_ON, ENABLE]):
        bench.command(controlword)
    if state is Q:
        bench.run(50)
        bench.command(QUICK_STOP, 5)
    assert bench.run() is state
    return bench


@pytest.mark.parametrize("state", NEXT)
@pytest.mark.parametrize("command", [SHUTDOWN, SWITCH_ON, ENABLE, DISABLE_VOLTAGE, QUICK_STOP, RESET])
@pytest.mark.parametrize("unused", [0x0000, 0xFF70])
def test_each_command_leads_where_the_standard_says(state: State, command: int, unused: int) -> None:
    bench = in_state(state)
    assert bench.command(command | unused) is NEXT[state][command]
    assert bench.shown() is NEXT[state][command]


def test_enabling_holds_the_position_until_the_brake_is_open_and_then_follows() -> None:
    bench = Bench(brake_open_s=0.05)
    bench.run(40)
    for controlword in (SHUTDOWN, SWITCH_ON):
        bench.command(controlword)
    bench.demands.clear()
    bench.set(0x607A, 1500)
    bench.command(ENABLE, 40)
    assert all(demand.brake and demand.mode == CSP and demand.target == 1000.0 for demand in bench.demands)
    assert not bench.bit(12)
    bench.set(0x607A, 1010)
    bench.run(20)
    assert bench.bit(12)
    assert not bench.demand.brake
    assert bench.demand.target == 1010.0
    assert bench.get(0x6064) == 1010
    assert bench.bit(10)  # there
    assert not bench.bit(11)
    bench.limited = True  # torque is at its limit
    bench.run()
    assert bench.bit(11)


def test_csv_and_cst_pass_on_their_set_values_with_the_offsets() -> None:
    bench = Bench().enable(CSV)
    bench.set(0x60FF, 5000)
    bench.set(0x60B1, 200)
    bench.set(0x60B2, 30)
    bench.run()
    assert (bench.demand.mode, bench.demand.target, bench.demand.torque_offset) == (CSV, 5200.0, 30.0)
    bench.run(2)
    assert bench.get(0x606C) == 5200
    bench = Bench().enable(CST)
    bench.set(0x6071, -400)
    bench.set(0x60B2, 25)
    bench.run()
    assert (bench.demand.mode, bench.demand.target, bench.demand.torque_offset) == (CST, -400.0, 25.0)
    bench.set(0x6072, 300)
    bench.run()
    assert (bench.demand.target, bench.demand.torque_limit) == (-300.0, 300.0)
    assert bench.bit(11)


def test_modes_change_in_operation_and_unknown_ones_are_refused() -> None:
    bench = Bench().enable()
    assert bench.get(0x6061) == CSP
    bench.ramp(20_000.0, 50)
    bench.set(0x60FF, 20_000)
    bench.set(0x6060, CSV)
    bench.run()
    assert bench.get(0x6061) == CSV
    assert (bench.demand.mode, bench.demand.target) == (CSV, 20_000.0)
    bench.set(0x6060, 6)  # homing: not here
    bench.run(5)
    assert bench.get(0x6061) == CSV
    with pytest.raises(SdoAbort, match="06090030"):
        bench.dictionary.write(0x6060, 0, b"\x06", 2)
    bench.dictionary.write(0x6060, 0, b"\x08", 2)
    bench.set(0x607A, round(bench.position))
    bench.run()
    assert bench.get(0x6061) == CSP
    assert bench.drive.state is E


def test_a_motor_that_does_not_follow_trips_after_the_time_out() -> None:
    bench = Bench().enable()
    bench.set(0x6065, 500)
    bench.set(0x6066, 20)
    bench.blocked = True
    bench.set(0x607A, 1000 + 501)
    bench.run(2)
    assert bench.get(0x60F4) == 501
    assert bench.bit(13)
    bench.run(18)
    assert bench.shown() is E
    bench.run()
    assert bench.shown() in (State.FAULT_REACTION, F)
    assert bench.get(0x603F) == 0x8611
    assert bench.get(0x1001) == 0x21
    (emergency,) = bench.emergencies
    assert (emergency.code, emergency.register) == (0x8611, 0x21)
    assert int.from_bytes(emergency.data, "little", signed=True) == 501
    assert bench.run(100) is F
    assert (bench.demand.mode, bench.demand.brake) == (BRAKED, True)


def test_a_following_error_within_the_window_or_short_of_the_time_out_is_none() -> None:
    for excess, cycles in ((0, 300), (1, 15)):
        bench = Bench().enable()
        bench.set(0x6065, 500)
        bench.set(0x6066, 20)
        bench.blocked = True
        bench.set(0x607A, 1000 + 500 + excess)
        bench.run(cycles)
        bench.blocked = False
        assert bench.run(100) is E
        assert not bench.bit(13)


def test_a_jump_of_the_set_position_is_followed_at_the_speed_limit_and_trips_if_it_is_far() -> None:
    for jump, state in ((3.0 * TOP * PERIOD_S, E), (0.1 * TOP, F)):
        bench = Bench().enable()
        bench.set(0x6065, round(5.0 * TOP * PERIOD_S))
        bench.set(0x6066, 30)
        bench.demands.clear()
        bench.set(0x607A, round(1000 + jump))
        bench.run(1)
        assert bench.bit(11)
        assert bench.run(900) is state
        targets = [1000.0] + [demand.target for demand in bench.demands if demand.mode == CSP]
        assert max(b - a for a, b in pairwise(targets)) <= TOP * PERIOD_S * (1 + 1e-9)
        assert bench.get(0x603F) == (0 if state is E else 0x8611)


def test_overspeed_trips() -> None:
    bench = Bench().enable(CST)
    bench.false_speed = 1.2 * TOP
    assert bench.run(10) is E
    bench.false_speed = -1.4 * TOP
    bench.run()
    assert bench.get(0x603F) == 0x8400


def test_software_position_limits_hold_the_set_position() -> None:
    bench = Bench(position_limits=(900, 1200))
    bench.enable()
    bench.ramp(10_000.0, 60)
    assert bench.get(0x6064) == 1200
    assert bench.bit(11)
    bench.set(0x60FF, 4000)
    bench.set(0x6060, CSV)
    bench.run(5)
    assert bench.get(0x6064) == 1200
    bench.set(0x60FF, -4000)
    bench.run(10)
    assert bench.get(0x6064) < 1200


@pytest.mark.parametrize(("option", "then"), [(1, D), (2, D), (3, D), (4, D), (5, Q), (6, Q), (7, Q), (8, Q)])
def test_quick_stop_brings_the_motor_to_a_stand_and_ends_as_the_option_says(option: int, then: State) -> None:
    bench = Bench().enable()
    bench.set(0x605A, option)
    bench.set(0x6085, DECELERATION)
    bench.ramp(SPEED, 30)
    start = bench.position
    assert bench.command(QUICK_STOP) is Q
    assert not bench.bit(5)
    bench.run(220)
    if option in (1, 2, 5, 6):
        assert bench.position - start == pytest.approx(WAY, abs=3 * SPEED * PERIOD_S)
    else:
        assert bench.position - start < 5 * SPEED * PERIOD_S
    bench.run(300)
    assert bench.velocity == 0.0
    assert bench.shown() is then
    if then is D:
        assert (bench.demand.mode, bench.demand.brake) == (BRAKED, True)
        assert all(d.mode != OFF for d in bench.demands)  # under power until the brake was closed
        bench.command(ENABLE, 5)
        assert bench.shown() is D
    else:
        assert bench.bit(10)
        assert not bench.demand.brake
        bench.set(0x607A, round(bench.position))
        bench.command(ENABLE, 3)
        assert bench.shown() is E
        assert bench.bit(12)


def test_quick_stop_option_0_takes_torque_away_and_the_brake_follows() -> None:
    bench = Bench(brake_close_s=0.02).enable()
    bench.set(0x605A, 0)
    bench.demands.clear()
    assert bench.command(QUICK_STOP, 50) is D
    assert len([demand for demand in bench.demands if demand.mode == OFF]) == 20
    assert bench.demands[-1].mode == BRAKED


@pytest.mark.parametrize("option", [0, 1, 2, 3, 4])
def test_a_fault_reaction_follows_its_option(option: int) -> None:
    bench = Bench().enable()
    bench.set(0x605E, option)
    bench.set(0x6085, DECELERATION)
    bench.ramp(SPEED, 30)
    bench.demands.clear()
    bench.drive.fault(0x7305)
    state = bench.run()
    assert state is (F if option == 0 else State.FAULT_REACTION)
    assert bench.shown() is state
    assert bench.demands[0].mode == {0: OFF, 1: CSP, 2: CSP, 3: CSV, 4: CSV}[option]
    assert bench.run(600) is F
    assert bench.demands[-1].mode == BRAKED
    assert [e.code for e in bench.emergencies] == [0x7305]


def test_the_first_fault_stands_and_a_reset_needs_a_rising_edge() -> None:
    bench = Bench().enable()
    bench.set(0x605E, 0)
    bench.set(0x6040, RESET | ENABLE)
    bench.run()
    bench.drive.fault(0x2310)
    bench.drive.fault(0x4310)
    assert bench.run(3) is F
    assert bench.get(0x603F) == 0x2310
    assert bench.command(RESET) is F  # it has been set all the time
    assert bench.command(0) is F
    assert bench.command(RESET) is D
    assert bench.get(0x603F) == bench.get(0x1001) == 0
    assert [(e.code, e.register) for e in bench.emergencies] == [(0x2310, 0x03), (0, 0)]
    assert bench.command(0) is D
    assert bench.enable().drive.state is E


def test_temperature_warns_then_trips_and_cannot_be_reset_while_hot() -> None:
    bench = Bench(warning_c=70.0, fault_c=90.0).enable()
    bench.temperature = 75.0
    assert bench.run() is E
    assert bench.bit(7)
    bench.temperature = 91.0
    bench.run(700)
    assert bench.shown() is F
    assert bench.get(0x603F) == 0x4310
    bench.command(0)
    assert bench.command(RESET) is F
    bench.temperature = 60.0
    bench.command(0)
    assert bench.command(RESET) is D
    assert not bench.bit(7)


@pytest.mark.parametrize(("faults", "then"), [(True, F), (False, D)])
def test_safe_torque_off_takes_torque_at_once_and_keeps_it_off(faults: bool, then: State) -> None:
    bench = Bench(safe_torque_off_faults=faults).enable()
    bench.ramp(5000.0, 10)
    bench.drive.safe_torque_off = True
    bench.demands.clear()
    assert bench.run() is then
    assert bench.demands[0].mode == OFF
    assert bench.get(0x60FD) >> 3 & 1
    bench.run(40)
    assert bench.demands[-1].mode == BRAKED
    assert bench.get(0x603F) == (0x5441 if faults else 0)
    bench.command(0)
    assert bench.command(RESET) is then
    bench.command(SHUTDOWN)
    assert bench.shown() is then
    bench.drive.safe_torque_off = False
    bench.command(0)
    bench.command(RESET)
    assert not bench.get(0x60FD) >> 3 & 1
    bench.enable()


def test_loss_of_mains_is_an_undervoltage_under_power_only() -> None:
    bench = Bench().enable()
    bench.drive.mains = False
    assert bench.run() is F
    assert bench.get(0x603F) == 0x3220
    assert not bench.bit(4)
    idle = Bench()
    idle.run(40)
    idle.command(SHUTDOWN)
    idle.drive.mains = False
    assert idle.run(3) is D
    assert not idle.emergencies


def test_loss_of_process_data_under_power_is_a_fault_and_otherwise_not() -> None:
    bench = Bench().enable()
    bench.online = False
    bench.run()
    assert bench.get(0x603F) == 0x7500
    assert bench.run(200) is F
    assert not bench.bit(9)
    bench.set(0x6040, RESET)
    assert bench.run(5) is F  # nobody listens
    bench.online = True
    bench.command(0)
    assert bench.command(RESET) is D
    idle = Bench()
    idle.run(40)
    idle.command(SHUTDOWN)
    idle.online = False
    assert idle.run() is D
    assert not idle.emergencies


def test_power_on_forgets_everything() -> None:
    bench = Bench().enable()
    bench.drive.fault(0x2310)
    bench.run(5)
    bench.drive.power_on()
    bench.set(0x6040, 0)
    bench.run()
    assert bench.shown() is State.NOT_READY
    assert bench.get(0x603F) == 0
    assert bench.demand.mode == BRAKED
    assert bench.run(30) is D
