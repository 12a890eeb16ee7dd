"""Messages between daemon, workers and clients, without any sockets.

Where to start: `messages` is the wire format of frames, estimates, torques and events; `control` the requests, replies
and verbs of the control socket; `job_replies` the types of replies about jobs; `worker_messages` the messages between
supervisor and workers. Any bytes decode or raise an error.

`roles`, `endpoints` and `transient_errors` are definitions shared by both sides; `json_values` converts values to
JSON. docs/wire.md describes the fields.
"""

__all__ = [
    "control", "endpoints", "job_replies", "json_values", "messages", "roles", "transient_errors", "worker_messages",
]  # fmt: skip
