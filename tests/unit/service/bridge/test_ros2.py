"""What ROS 2 is told: the description of the topics, and the example that converts, without ROS."""

import io
import json
import math
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from mcap_ros2.writer import Writer

from service.bridge.ros2 import description
from service.protocol.messages import Message, encode
from tests.lab.bridge.publisher import Arm
from tests.lab.command_line import thetad

ROOT = Path(__file__).resolve().parents[4]
EXAMPLE = ROOT / "examples" / "ros2"
EXAMPLES = runpy.run_path(str(EXAMPLE / "thetad_messages.py"))
Converter, RATE_HZ = EXAMPLES["Converter"], EXAMPLES["RATE_HZ"]
_RULE = "=" * 80
_TIME = f"{_RULE}\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
_HEADER = f"{_RULE}\nMSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n{_TIME}"
#: Definitions of common_interfaces and rcl_interfaces, as every ROS 2 has them since 2020.
DEFINITIONS = {
    "sensor_msgs/msg/JointState": "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\n"
    f"float64[] effort\n{_HEADER}",
    "std_msgs/msg/Float64MultiArray": f"std_msgs/MultiArrayLayout layout\nfloat64[] data\n{_RULE}\n"
    f"MSG: std_msgs/MultiArrayLayout\nstd_msgs/MultiArrayDimension[] dim\nuint32 data_offset\n{_RULE}\n"
    "MSG: std_msgs/MultiArrayDimension\nstring label\nuint32 size\nuint32 stride\n",
    "diagnostic_msgs/msg/DiagnosticArray": "std_msgs/Header header\ndiagnostic_msgs/DiagnosticStatus[] status\n"
    f"{_RULE}\nMSG: diagnostic_msgs/DiagnosticStatus\nbyte level\nstring name\nstring message\nstring hardware_id\n"
    f"diagnostic_msgs/KeyValue[] values\n{_RULE}\nMSG: diagnostic_msgs/KeyValue\nstring key\nstring value\n{_HEADER}",
    "rcl_interfaces/msg/Log": "builtin_interfaces/Time stamp\nuint8 level\nstring name\nstring msg\nstring file\n"
    f"string function\nuint32 line\n{_TIME}",
}
Converted = dict[str, list[tuple[str, dict[str, Any]]]]


def converted(converter: Any, *messages: Message) -> Converted:
    """What becomes of messages on the wire, by ROS topic."""
    found: Converted = {}
    for message in messages:
        for topic, kind, fields in converter.convert(*encode(message)):
            found.setdefault(topic, []).append((kind, fields))
    return found


def over_ros(kind: str, fields: dict[str, Any]) -> Any:
    """The message as ROS 2 has it in CDR, encoded and decoded by another's program; unknown fields are refused."""
    named = {line.split()[1] for line in DEFINITIONS[kind].partition(_RULE)[0].splitlines()}
    assert fields.keys() <= named
    given = json.loads(json.dumps(fields, default=lambda level: level[0]))  # a byte is bytes in rclpy
    stream = io.BytesIO()
    writer = Writer(stream)
    writer.write_message("/topic", writer.register_msgdef(kind, DEFINITIONS[kind]), given, log_time=0)
    writer.finish()
    stream.seek(0)
    ((_, _, _, message),) = make_reader(stream, decoder_factories=[DecoderFactory()]).iter_decoded_messages()
    return message


def test_all_that_an_arm_tells_becomes_messages_of_ros() -> None:
    arm = Arm("left-arm")
    first, frame, torque, estimate = arm.frame(0), arm.frame(50, valid=[True, False]), arm.torque(50), arm.estimate(50)
    converter = Converter()
    assert converted(converter, *arm.meta(), *arm.status()) == {}
    found = converted(converter, first, frame, torque, estimate, arm.event("drift", "it has drifted"))
    (_, before), (kind, fields) = found["/left_arm/joint_states"]
    state = over_ros(kind, before)
    assert state.name == list(arm.joints)
    for field, channel in (("position", "q"), ("velocity", "dq"), ("effort", "tau")):
        np.testing.assert_array_equal(getattr(state, field), getattr(first.frame, channel))
    assert [math.isnan(value) for value in over_ros(kind, fields).position] == [False, True]
    current = over_ros(*found["/left_arm/motor_current"][0])
    np.testing.assert_array_equal(current.data, first.frame.current)
    assert (current.layout.dim[0].label, current.layout.dim[0].size) == ("turn,slide", 2)
    np.testing.assert_array_equal(over_ros(*found["/left_arm/predicted_torque"][0]).effort, torque.predicted)
    np.testing.assert_array_equal(over_ros(*found["/left_arm/residual_torque"][0]).effort, torque.residual)
    rows = over_ros(*found["/left_arm/parameters"][0]).status
    assert [(row.name, row.level, row.message, row.hardware_id) for row in rows] == [
        ("Ia1", 0, "estimated", "left-arm"), ("fv1", 1, "unestimated", "left-arm"), ("m2", 3, "stale", "left-arm"),
    ]  # fmt: skip
    values = [{pair.key: pair.value for pair in row.values} for row in rows]
    assert float(values[0]["value"]) == estimate.theta[0]
    half = 1.96 * estimate.std[0]
    assert float(values[0]["upper"]) - estimate.theta[0] == pytest.approx(half)
    assert values[1] == {"unit": "N*m*s/rad", "excited": "no"}
    line = over_ros(*found["/left_arm/events"][0])
    assert (line.level, line.name, line.msg) == (20, "thetad.left-arm.drift", "it has drifted")


def test_the_description_is_of_these_messages() -> None:
    """Topics, types, sources, rates and fields that are filled in are those of the example."""
    arm = Arm("left-arm")
    messages = [arm.frame(50), arm.torque(50), arm.estimate(50), arm.event("drift", "it has drifted")]
    converter = Converter()
    converted(converter, *arm.meta())
    described = {each["topic"]: each for each in description(["left-arm"], "f", "e")["topics"]}
    told = set()
    for message in messages:
        for topic, ((kind, fields),) in converted(converter, message).items():
            said = described[topic]
            told.add(topic)
            assert said["type"] == kind
            source = said["from"]["topic"]
            wanted = "frames" if message.envelope.src == "acquisition" else "estimates"
            assert (source.split("/")[0], said["from"]["endpoint"]) == ("left-arm", wanted)
            assert said["rate_hz"] == RATE_HZ.get(source.split("/")[1])
            names = {re.split(r"[.\[]", field["field"])[0] for field in said["fields"]} - {"header", "stamp"}
            assert names == fields.keys()
            rows = {field["field"].removeprefix("status[].") for field in said["fields"] if "[]" in field["field"]}
            assert rows == (set(fields["status"][0]) if rows else set())
    assert told == described.keys()


def test_at_most_so_many_a_second_and_names_of_the_present_start() -> None:
    old, new = Arm(), Arm(epoch=2, joints=("a", "b", "c"))
    converter = Converter()
    found = converted(converter, *old.meta(), *(old.frame(k) for k in range(1000)))
    assert len(found["/demo/joint_states"]) == 100
    assert converted(converter, new.frame(1000)) == {}
    ((_, fields),) = converted(converter, *new.meta(), new.frame(0))["/demo/joint_states"]
    assert fields["name"] == ["a", "b", "c"]


def test_the_example_compiles_and_the_page_shows_it() -> None:
    """The node itself is not run here: there is no rclpy without a ROS 2."""
    node = (EXAMPLE / "thetad_node.py").read_text(encoding="utf-8")
    compile(node, "thetad_node.py", "exec")
    assert node in (ROOT / "docs" / "bridges.md").read_text(encoding="utf-8")
    messages = (EXAMPLE / "thetad_messages.py").read_text(encoding="utf-8")
    assert set(re.findall(r"^(?:import|from) (\w+)", messages, re.MULTILINE)) <= {"math", "re", "msgpack"}


def test_the_command_prints_the_description(tmp_path: Path) -> None:
    wanted = description(["left-arm"], "tcp://127.0.0.1:9870", "tcp://127.0.0.1:9871")
    assert thetad("bridge", "ros2", "--arm", "left-arm", "--json").json == wanted
    assert yaml.safe_load(thetad("bridge", "ros2", "--arm", "left-arm").out) == wanted
    path = tmp_path / "site.toml"
    arms = "".join(f'[[arm]]\nname = "{name}"\nrobot = "emps"\n[arm.driver]\nkind = "sim"\n' for name in ("a", "b"))
    path.write_text(f"[daemon]\nframes_port = 4000\n{arms}")
    told = thetad("bridge", "ros2", "-c", path, "--json").json
    assert told["wire"]["endpoints"] == {"frames": "tcp://127.0.0.1:4000", "estimates": "tcp://127.0.0.1:9871"}
    assert {each["topic"].split("/")[1] for each in told["topics"]} == {"a", "b"}
