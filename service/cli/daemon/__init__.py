"""Commands that run a daemon, or work with a running one.

Where to start: `serve` runs the daemon, or only checks its configuration; `demo` runs the complete workflow once.
`control` sends requests, `status` shows the processes, `watch` shows the estimates live, `events` the history, `record`
starts and stops the recorder, `bridge` serves Foxglove and describes ROS 2 topics.

`keys` manages the keys of daemon and clients, `doctor` checks the host, `deploy` installs a system service.
"""

__all__ = ["bridge", "control", "demo", "deploy", "doctor", "events", "keys", "record", "serve", "status", "watch"]
