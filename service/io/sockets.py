"""ZeroMQ sockets: check for a waiting message."""

import zmq


def readable(socket: zmq.Socket[bytes]) -> bool:
    """Return whether a message waits; cheaper than a poll."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)
