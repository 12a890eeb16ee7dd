"""A control socket with keys in the test's own process, without a daemon behind it."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from service.client import ClientKey, Control
from service.config.load import parse_config
from service.io.log import get_log
from service.protocol.control import Request, encode_result
from service.protocol.roles import Role
from service.security.files import make_directory
from service.security.keys import SERVER_KEY, new_pair, write_pair
from service.security.registry import Registry
from service.supervisor._control_server import ControlSocket

LONG_S = 30.0


class Desk:
    """A control socket in this thread that replies to every request with its verb."""

    def __init__(self, tmp_path: Path, **more: Any) -> None:
        self.keys = tmp_path / "keys"
        make_directory(self.keys)
        self.server = new_pair()
        write_pair(self.keys / SERVER_KEY, self.server, "test")
        daemon = {"control_port": 0, "require_keys": True, "keys_dir": str(self.keys), "state_dir": str(tmp_path)}
        arm = {"name": "a", "robot": "emps", "driver": {"kind": "sim"}}
        config = parse_config({"daemon": daemon | more, "arm": [arm]}, "test", tmp_path)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = ControlSocket(self.context, config, self.answer, get_log("test"))
        self.endpoint = f"tcp://127.0.0.1:{self.socket.port}"

    def answer(self, route: list[bytes], request: Request) -> None:
        self.socket.reply(route, encode_result(request.id, {"verb": request.verb}))

    def client(self, name: str, role: Role = "admin") -> ClientKey:
        pair = new_pair()
        Registry(self.keys).add(name, role, pair.public)
        return ClientKey(pair, self.server.public)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve in a thread."""
        done = threading.Event()

        def serve() -> None:
            while not done.wait(0.005):
                self.socket.serve()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def ask(self, control: Control, timeout_s: float = LONG_S) -> Any:
        """Make a request while a thread serves."""
        with self.serving():
            return control.request("ping", timeout_s=timeout_s)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.context.destroy(linger=0)
