"""Bridges from a daemon's messages to other programs: live for Foxglove, described for ROS 2.

Where to start: `relay` passes messages from a subscriber to a viewer. For each message `conversion` makes what the
viewer shows, with names, bounds and a limited rate; `_schemas` has the JSON schema of each stream. `foxglove` is the
viewer: a WebSocket server by Foxglove's SDK, which is an optional dependency. `ros2` describes topics, types and units
for a ROS 2 node that is not part of the package.

A bridge is an ordinary client in a process of its own; the daemon does not depend on it.
"""

__all__ = ["conversion", "foxglove", "relay", "ros2"]
