"""Bind a public port of the daemon."""

import time

import zmq

from service.config.load import ConfigError

BIND_S = 3.0  # a predecessor that was killed may still hold the port for a moment


class PortTakenError(ConfigError):
    """A port that the configuration names is in use."""

    again = True


def bind_tcp(socket: zmq.Socket[bytes], address: str, port: int, key: str, patience_s: float = 0.0) -> int:
    """Bind and return the real port; raises `PortTakenError` if it stays in use for `patience_s`."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            socket.bind(f"tcp://{address}:{port or '*'}")
        except zmq.ZMQError as error:
            if error.errno == zmq.EADDRINUSE and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            raise PortTakenError(
                f"daemon.{key}: cannot bind {address}:{port}: {error.strerror}; "
                "is another daemon running? Choose another port, or 0 for any free one"
            ) from error
        endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
        return int(bytes(endpoint).rstrip(b"\x00").rpartition(b":")[2])
