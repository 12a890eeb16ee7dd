"""The gateway: one process that publishes the arms' private messages on the daemon's public ports.

Start with `process`: `main` opens the forwarders, runs each in a thread, and serves authentication meanwhile.
`Forwarder` passes messages unchanged through libzmq's proxy (port `estimates`); `FrameForwarder` publishes
each frame of a message of several by itself (port `frames`); `ThrottledForwarder` limits the rate per topic, for
programs that draw (port `mirror`).

Nothing passes the other way. Requests of clients have a socket of their own (`service.supervisor`).
"""

__all__ = ["process"]
