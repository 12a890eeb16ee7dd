"""Robot descriptions: `configs/robots/NAME.toml`, or a URDF.

`file.load_robot` finds and reads a description and returns a `RobotFile`: the model, identification settings, a hash,
and a self-contained source from which `file.robot_from_source` makes the same robot again.

- `_schema`: the tables and keys of the file.
- `_build`: the tables to a `RobotModel`.
"""

__all__ = ["file"]
