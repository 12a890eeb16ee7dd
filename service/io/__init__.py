"""Files, log and sockets shared by all processes.

Where to start: `log` writes JSON lines to stderr. `state_file` saves an estimator's state so that a crash leaves the
old or the new file. `trajectory_file` reads trajectories and converts them to requests, `toml_text` writes robot
files, and `sockets` polls a ZeroMQ socket cheaply.

Atomic writes of files are in `drivers.files.atomic_write`.
"""

__all__ = ["kept_positions", "log", "sockets", "state_file", "toml_text", "trajectory_file"]
