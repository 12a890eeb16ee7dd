"""Device profiles: those that come with the package, and what is refused."""

from collections.abc import Callable
from importlib.resources import files
from math import lcm
from pathlib import Path

import pytest

from sim_backend.drive.modes import MODES
from sim_backend.ethercat._communication import build_dictionary
from sim_backend.ethercat._profile import DeviceProfileError, known_profiles, load_profile, parse_profile

SHIPPED = files("sim_backend.ethercat") / "devices"
SERVO = (SHIPPED / "generic_servo.toml").read_text()


@pytest.mark.parametrize("name", known_profiles())
def test_constants_agree_with_the_objects_that_say_them(name: str) -> None:
    profile = load_profile(name)
    drive, dictionary = profile.drive, build_dictionary(profile)
    assert dictionary.entry(0x6075).value == drive.rated_current_ma
    torque = dictionary.find(0x6076)
    if drive.torque_side == "none":
        assert torque is None
    else:
        assert torque.value == drive.rated_torque_mnm
    gear = drive.gear_ratio if drive.torque_side == "joint" else 1.0
    rated = drive.torque_constant_nm_per_a * drive.rated_current_ma * gear
    assert rated == pytest.approx(drive.rated_torque_mnm, rel=0.01)
    supported = dictionary.entry(0x6502).value
    assert supported == sum(1 << (MODES[mode] - 1) for mode in drive.modes)
    for extra in (drive.temperature, drive.second_position):
        if extra is not None:
            assert dictionary.find(extra.object.index, extra.object.subindex) is not None
    assert drive.encoder_counts_per_rev("motor") == drive.motor_counts_per_rev


def test_user_units_follow_from_feed_gear_and_resolution() -> None:
    profile = load_profile("compact_csp")
    dictionary = build_dictionary(profile)
    value = {
        (index, sub): int(dictionary.entry(index, sub).value) for index in (0x608F, 0x6091, 0x6092) for sub in (1, 2)
    }
    assert value[0x608F, 1] / value[0x608F, 2] == profile.drive.motor_counts_per_rev == 2**17
    assert value[0x6091, 1] / value[0x6091, 2] == profile.drive.gear_ratio
    assert value[0x6092, 1] / value[0x6092, 2] == profile.drive.position.units_per_rev
    assert int(dictionary.entry(0x3001).value) * 1e-4 == pytest.approx(profile.drive.torque_constant_nm_per_a)
    assert lcm(value[0x6092, 1], 360) == value[0x6092, 1]  # whole units to a degree


def test_a_name_that_is_not_known_gets_a_hint() -> None:
    with pytest.raises(DeviceProfileError, match="did you mean 'generic_servo'") as caught:
        load_profile("generic_sevro")
    assert "compact_csp" in str(caught.value)


def test_a_file_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    with pytest.raises(DeviceProfileError, match=r"mine\.toml: cannot be read"):
        load_profile(path)
    path.write_text(SERVO.replace("GS-1001", "GS-1002"))
    assert load_profile(path).identity.order_number == "GS-1002"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text + "\n[[object", "my.toml: not valid TOML"),
        (lambda text: text.replace("pdo_slots", "pdo_slits"), "pdo_slits: Extra inputs"),
        (lambda text: text.replace('"0x6040:0:16"', '"0x6040:16"'), "should read 'index:subindex:bits'"),
        (lambda text: text.replace('"INTEGER32"', '"INT32"', 1), "is no data type: 'INT32'"),
        (lambda text: text.replace("assigned = [0x1600]", "assigned = [0x1A00]"), "outputs.assigned names 0x1A00"),
        (lambda text: text.replace("index = 0x1601", "index = 0x1600"), "PDO 0x1600 appears twice"),
        (lambda text: text.replace("send_start = 0x1100", "send_start = 0x10F0"), "runs into mailbox.send at 0x10F0"),
        (lambda text: text.replace("max_bytes = 64", "max_bytes = 8", 1), "longer than its max_bytes = 8"),
        (lambda text: text.replace("value = 5000", "value = 5.5"), "value 5.5 is no UNSIGNED32"),
        (lambda text: text.replace('torque_side = "motor"', 'torque_side = "none"'), "mode cst needs a torque_side"),
        (lambda text: text.replace('kind = "record"', 'kind = "variable"\ntype = "BIT2"', 1),
         "a variable has no entries"),
    ],
)  # fmt: skip
def test_a_wrong_profile_is_refused_with_file_and_field(change: Callable[[str], str], says: str) -> None:
    text = change(SERVO)
    assert text != SERVO
    with pytest.raises(DeviceProfileError, match=r"my\.toml") as caught:
        parse_profile(text.encode(), "my.toml")
    assert says in str(caught.value)
