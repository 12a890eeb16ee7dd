"""What ROS 2 is told: the description of the topics, and the example that converts, without ROS."""

from __future__ import annotations

import importlib.util
import io
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml
import zmq
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from mcap_ros2.writer import Writer

from service.bridge.ros2 import description
from tests.lab.bridge.publisher import DEADLINE_S, Arm, Publisher
from tests.lab.command_line import thetad

ROOT = Path(__file__).resolve().parents[4]
EXAMPLE = ROOT / "examples" / "ros2"
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


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """The example's module, loaded from its file as a user of it would."""
    spec = importlib.util.spec_from_file_location("thetad_messages", EXAMPLE / "thetad_messages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def published() -> Iterator[tuple[Publisher, zmq.Socket[bytes]]]:
    """A publisher, and a socket with nothing but pyzmq, connected as the node's."""
    with Publisher() as publisher:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        subscriber = context.socket(zmq.SUB)
        for endpoint in publisher.endpoints:
            subscriber.connect(endpoint)
        subscriber.subscribe("")
        publisher.await_subscriber()
        yield publisher, subscriber
        context.destroy(linger=0)


def converted(converter: Any, subscriber: zmq.Socket[bytes], count: int) -> Converted:
    """What becomes of `count` messages, by ROS topic."""
    found: Converted = {}
    for _ in range(count):
        assert subscriber.poll(int(DEADLINE_S * 1000))
        for topic, kind, fields in converter.convert(*subscriber.recv_multipart()):
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


def test_all_that_an_arm_tells_becomes_messages_of_ros(
    example: ModuleType, published: tuple[Publisher, zmq.Socket[bytes]]
) -> None:
    publisher, subscriber = published
    arm = Arm("left-arm")
    first, frame, torque, estimate = arm.frame(0), arm.frame(50, valid=[True, False]), arm.torque(50), arm.estimate(50)
    converter = example.Converter()
    publisher.send(*arm.meta(), *arm.status())
    assert converted(converter, subscriber, 4) == {}
    publisher.send(first, frame, torque, estimate, arm.event("drift", "it has drifted"))
    found = converted(converter, subscriber, 5)
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
        ("Ia1", 0, "estimated", "left-arm"),
        ("fv1", 1, "unestimated", "left-arm"),
        ("m2", 3, "stale", "left-arm"),
    ]
    values = [{pair.key: pair.value for pair in row.values} for row in rows]
    assert float(values[0]["value"]) == estimate.theta[0]
    half = 1.96 * estimate.std[0]
    assert half > 0.0
    assert float(values[0]["upper"]) - estimate.theta[0] == pytest.approx(half)
    assert estimate.theta[0] - float(values[0]["lower"]) == pytest.approx(half)
    assert values[1] == {"unit": "N*m*s/rad", "excited": "no"}
    line = over_ros(*found["/left_arm/events"][0])
    assert (line.level, line.name, line.msg) == (20, "thetad.left-arm.drift", "it has drifted")


def test_the_description_is_of_these_messages(
    example: ModuleType, published: tuple[Publisher, zmq.Socket[bytes]]
) -> None:
    """Topics, types, sources, rates and fields that are filled in are those of the example."""
    publisher, subscriber = published
    arm = Arm("left-arm")
    messages = [arm.frame(50), arm.torque(50), arm.estimate(50), arm.event("drift", "it has drifted")]
    converter = example.Converter()
    publisher.send(*arm.meta())
    converted(converter, subscriber, 2)
    described = {each["topic"]: each for each in description(["left-arm"], "f", "e")["topics"]}
    told = set()
    for message in messages:
        publisher.send(message)
        for topic, ((kind, fields),) in converted(converter, subscriber, 1).items():
            said = described[topic]
            told.add(topic)
            assert said["type"] == kind
            source = said["from"]["topic"]
            wanted = "frames" if message.envelope.src == "acquisition" else "estimates"
            assert (source.split("/")[0], said["from"]["endpoint"]) == ("left-arm", wanted)
            assert said["rate_hz"] == example.RATE_HZ.get(source.split("/")[1])
            names = {re.split(r"[.\[]", field["field"])[0] for field in said["fields"]} - {"header", "stamp"}
            assert names == fields.keys()
            rows = {field["field"].removeprefix("status[].") for field in said["fields"] if "[]" in field["field"]}
            assert rows == (set(fields["status"][0]) if rows else set())
    assert told == described.keys()


def test_at_most_so_many_a_second_and_names_of_the_present_start(
    example: ModuleType, published: tuple[Publisher, zmq.Socket[bytes]]
) -> None:
    publisher, subscriber = published
    old, new = Arm(), Arm(epoch=2, joints=("a", "b", "c"))
    converter = example.Converter()
    publisher.send(*old.meta(), *(old.frame(k) for k in range(1000)))
    found = converted(converter, subscriber, 1002)
    assert len(found["/demo/joint_states"]) == 100
    publisher.send(new.frame(1000))
    assert converted(converter, subscriber, 1) == {}
    publisher.send(*new.meta(), new.frame(0))
    ((_, fields),) = converted(converter, subscriber, 3)["/demo/joint_states"]
    assert fields["name"] == ["a", "b", "c"]


def test_the_example_is_short_and_the_page_shows_it() -> None:
    """The node itself is not run here: there is no rclpy without a ROS 2."""
    node = (EXAMPLE / "thetad_node.py").read_text(encoding="utf-8")
    assert len(node.splitlines()) < 60
    compile(node, "thetad_node.py", "exec")
    assert node in (ROOT / "docs" / "bridges.md").read_text(encoding="utf-8")
    messages = (EXAMPLE / "thetad_messages.py").read_text(encoding="utf-8")
    assert set(re.findall(r"^(?:import|from) (\w+)", messages, re.MULTILINE)) <= {"math", "re", "msgpack"}
    assert "rclpy" not in sys.modules


def test_the_command_prints_the_description(tmp_path: Path) -> None:
    wanted = description(["left-arm"], "tcp://127.0.0.1:9870", "tcp://127.0.0.1:9871")
    assert thetad("bridge", "ros2", "--arm", "left-arm", "--json").json == wanted
    found = thetad("bridge", "ros2", "--arm", "left-arm")
    assert found.code == 0
    assert yaml.safe_load(found.out) == wanted
    path = tmp_path / "site.toml"
    arms = "".join(f'[[arm]]\nname = "{name}"\nrobot = "emps"\n[arm.driver]\nkind = "sim"\n' for name in ("a", "b"))
    path.write_text(f"[daemon]\nframes_port = 4000\n{arms}")
    told = thetad("bridge", "ros2", "-c", path, "--json").json
    assert told["wire"]["endpoints"] == {"frames": "tcp://127.0.0.1:4000", "estimates": "tcp://127.0.0.1:9871"}
    assert {each["topic"].split("/")[1] for each in told["topics"]} == {"a", "b"}
