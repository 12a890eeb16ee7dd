"""Requests of a client whose connection goes away."""

import time

import zmq

from service.client import Control
from service.protocol.control import decode_request, encode_result


class Interrupted(Control):
    """The connection goes away between "there is room for a message" and sending, once; and `server` answers."""

    server: zmq.Socket[bytes]
    rooms = 0

    def _arrives(self, deadline: float, event: int = zmq.POLLIN) -> bool:
        if event == zmq.POLLIN:
            client, data = self.server.recv_multipart()
            self.server.send_multipart([client, encode_result(decode_request(data).id, {"answer": 42})])
        elif self.rooms == 1:
            assert time.monotonic() < deadline
            self._socket.connect(self.endpoint)
        found = super()._arrives(deadline, event)
        self.rooms += event == zmq.POLLOUT
        if self.rooms == 1:
            self._socket.disconnect(self.endpoint)
            self._socket.setsockopt(zmq.SNDTIMEO, 10_000)  # a blocking call would outlast the request
        return found


def test_a_request_does_not_wait_on_a_connection_that_has_just_gone_away() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as server:
        server.setsockopt(zmq.RCVTIMEO, 5000)
        port = server.bind_to_random_port("tcp://127.0.0.1")
        with Interrupted(f"tcp://127.0.0.1:{port}") as control:
            control.server = server
            assert control.request("ping", timeout_s=5.0) == {"answer": 42}
            assert control.rooms == 2
