"""What ROS 2 messages a thetad daemon's messages become; needs msgpack alone.  docs/bridges.md describes the topics."""

import math
import re

import msgpack

RATE_HZ = {"frame": 100.0, "torque": 100.0, "estimate": 1.0}  # at most, on the daemon's clock
LEVELS = {"estimated": b"\x00", "frozen": b"\x00", "unestimated": b"\x01", "invalid": b"\x02", "stale": b"\x03"}
EVENT_LEVEL = 20  # INFO of rcl_interfaces/msg/Log


class Converter:
    """Remembers names, which come once a second, and when a message of each kind is due."""

    def __init__(self):
        self._meta, self._due = {}, {}

    def convert(self, topic, payload):
        """Yield ROS topic, type and fields of each message that the two parts of a daemon's message become."""
        message, (arm, kind) = msgpack.unpackb(payload), topic.decode().split("/")
        if message["v"] != 1:
            return
        ros, sender = "/" + re.sub(r"[^A-Za-z0-9_]", "_", arm), (arm, message["src"])
        if kind == "meta":
            self._meta[sender] = message
        elif kind == "event":
            fields = {"level": EVENT_LEVEL, "name": f"thetad.{arm}.{message['event']}", "msg": message["text"]}
            yield f"{ros}/events", "rcl_interfaces/msg/Log", fields
        elif kind in RATE_HZ:
            meta = self._meta.get(sender)
            if meta is None or meta["epoch"] != message["epoch"] or not self._is_due(arm, kind, message):
                return
            for name, type_, fields in {"frame": frame, "torque": torque, "estimate": estimate}[kind](message, meta):
                yield f"{ros}/{name}", type_, fields

    def _is_due(self, arm, kind, message):
        period, t = 1.0 / RATE_HZ[kind], message["t"]
        epoch, due = self._due.get((arm, kind), (None, t))
        if epoch != message["epoch"] or t < due - 2.0 * period:  # a start, or a step back
            due = t
        if t < due - 0.05 * period:
            return False
        self._due[arm, kind] = message["epoch"], (due if t < due + period else t) + period
        return True


def frame(message, meta):
    """Tell positions, velocities, torques: NaN where a value must not be used, nothing where none is measured."""
    names = meta["joint_names"]
    valid = message.get("valid", [1] * len(names))
    q, dq, tau, current = (
        [value if ok else math.nan for value, ok in zip(message[key], valid, strict=True)] if key in message else []
        for key in ("q", "dq", "tau", "current")
    )
    yield "joint_states", "sensor_msgs/msg/JointState", {"name": names, "position": q, "velocity": dq, "effort": tau}
    if current:
        layout = {"dim": [{"label": ",".join(names), "size": len(names), "stride": len(names)}]}
        yield "motor_current", "std_msgs/msg/Float64MultiArray", {"layout": layout, "data": current}


def torque(message, meta):
    """Tell the torque that the active model predicts, and torque from outside."""
    for key in ("predicted", "residual"):
        yield f"{key}_torque", "sensor_msgs/msg/JointState", {"name": meta["joints"], "effort": message[key]}


def estimate(message, meta):
    """Tell base parameters with bounds; no number where the data do not support one."""
    if message["hash"] != meta["hash"]:
        return
    columns = [meta["parameters"], meta["units"], *(message[key] for key in ("theta", "std", "status", "excited"))]
    rows = []
    for name, unit, value, std, status, excited in zip(*columns, strict=True):
        known = status in ("estimated", "stale", "frozen")
        numbers = {"value": value, "lower": value - 1.96 * std, "upper": value + 1.96 * std, "std": std}
        texts = {**(numbers if known else {}), "unit": unit, "excited": "yes" if excited else "no"}
        values = [{"key": key, "value": str(text)} for key, text in texts.items()]
        level = LEVELS.get(status, b"\x02")
        row = {"level": level, "name": name, "message": status, "hardware_id": meta["arm"], "values": values}
        rows.append(row)
    yield "parameters", "diagnostic_msgs/msg/DiagnosticArray", {"status": rows}
