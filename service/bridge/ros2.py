"""Description of a daemon for a ROS 2 node (`examples/ros2`): topics, types, quality of service, fields and units."""

from collections.abc import Sequence
from typing import Any

from drivers.files.recordings.export import ros_name
from service.protocol.messages import VERSION

#: Default of `rclpy.create_publisher(type, topic, 10)`; compatible with subscribers of either reliability.
QOS = {"reliability": "reliable", "durability": "volatile", "history": "keep_last", "depth": 10}
_STAMP = "the node's clock, when the message came; t and t_ns of the daemon are on the source's clock"
_EFFORT = "N*m, of prismatic joints N"


def description(arms: Sequence[str], frames: str, estimates: str) -> dict[str, Any]:
    """Return the description for these arms and these endpoints of frames and estimates."""
    return {
        "wire": {
            "socket": "ZeroMQ SUB, two parts: topic <arm>/<kind>, msgpack map",
            "version": VERSION,
            "endpoints": {"frames": frames, "estimates": estimates},
            "names": "of <arm>/meta with the same src and epoch, sent every second",
        },
        "qos": QOS, "topics": [topic for arm in arms for topic in _topics(arm)],
    }  # fmt: skip


def _topics(arm: str) -> list[dict[str, Any]]:
    frame, torque, estimate = f"{arm}/frame", f"{arm}/torque", f"{arm}/estimate"
    return [
        _topic(
            arm, "joint_states", "sensor_msgs/msg/JointState", "frames", frame, 100.0, _field("header.stamp", _STAMP),
            _field("name", "joint_names of meta"), _field("position", "q", "rad, of prismatic joints m"),
            _field("velocity", "dq", "rad/s, of prismatic joints m/s"), _field("effort", "tau", _EFFORT),
        ),
        _topic(
            arm, "motor_current", "std_msgs/msg/Float64MultiArray", "frames", frame, 100.0,
            _field("layout.dim", "joint_names of meta, with commas between, as the label of one dimension"),
            _field("data", "current", "A"),
        ),
        _topic(
            arm, "predicted_torque", "sensor_msgs/msg/JointState", "estimates", torque, 100.0,
            _field("header.stamp", _STAMP), _field("name", "joints of meta"), _field("effort", "predicted", _EFFORT),
        ),
        _topic(
            arm, "residual_torque", "sensor_msgs/msg/JointState", "estimates", torque, 100.0,
            _field("header.stamp", _STAMP), _field("name", "joints of meta"),
            _field("effort", "residual: torque from outside", _EFFORT),
        ),
        _topic(
            arm, "parameters", "diagnostic_msgs/msg/DiagnosticArray", "estimates", estimate, 1.0,
            _field("header.stamp", _STAMP),
            _field("status[].name", "parameters of meta"),
            _field("status[].level", "status: OK if estimated or frozen, WARN if unestimated, ERROR if invalid, STALE"),
            _field("status[].message", "status"),
            _field("status[].hardware_id", "the arm"),
            _field("status[].values", "value, lower, upper (95 %), std, unit, excited; no numbers without a value",
                   "units of meta"),
        ),
        _topic(
            arm, "events", "rcl_interfaces/msg/Log", "estimates", f"{arm}/event", None, _field("stamp", _STAMP),
            _field("level", "20 (INFO)"), _field("name", "thetad.<arm>.<event>"), _field("msg", "text"),
        ),
    ]  # fmt: skip


def _topic(
    arm: str, name: str, kind: str, endpoint: str, source: str, rate_hz: float | None, *fields: dict[str, str]
) -> dict[str, Any]:
    entry = {"topic": f"/{ros_name(arm)}/{name}", "type": kind, "from": {"endpoint": endpoint, "topic": source}}
    return entry | {"rate_hz": rate_hz, "fields": list(fields)}


def _field(name: str, source: str, unit: str = "") -> dict[str, str]:
    return {"field": name, "from": source} | ({"unit": unit} if unit else {})
