"""Connections by HTTP over real sockets: who takes no answer is hung up on, or makes room for others."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Collection

import pytest
import uvicorn
from starlette.responses import Response

from service.web import _connection as connection
from service.web._connection import MAX, Connection
from service.web.server import Server, listen
from tests.lab.asynchronous import asynchronous

BODY = bytes(1_000_000)  # more than the buffers of two sockets hold
ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
DEADLINE_S = 120.0  # patience with a busy machine


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """A server that answers GET with a large body, and HEAD without."""
    listener = listen("127.0.0.1", 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)  # connections have it from there
    server = Server(
        uvicorn.Config(Response(BODY), http=Connection, ws="none", lifespan="off", interface="asgi3", log_config=None)
    )
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.001)
    try:
        yield server
    finally:
        server.shut_down()
        await task
        listener.close()


async def until(done: Collection[object], count: int) -> None:
    """Wait until a set has so many members."""
    deadline = time.monotonic() + DEADLINE_S
    while len(done) != count:
        assert time.monotonic() < deadline, f"{len(done)} connections"
        await asyncio.sleep(0.01)


async def silent_client(server: Server, stack: contextlib.ExitStack, data: bytes) -> socket.socket:
    """A client that sends and reads nothing."""
    raw = stack.enter_context(socket.socket())
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    raw.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, server.servers[0].sockets[0].getsockname())
    await loop.sock_sendall(raw, data)
    return raw


@pytest.mark.parametrize("data", [20 * ASK, LAST, ASK + LAST], ids=["many", "last", "one-and-last"])
@asynchronous
async def test_who_takes_no_answer_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Also when the answer is the last one, and the connection closing already."""
    monkeypatch.setattr(connection, "REQUEST_S", 0.3)
    async with serving() as server:
        with contextlib.ExitStack() as stack:
            await silent_client(server, stack, data)
            await until(server.server_state.connections, 1)
            await until(server.server_state.connections, 0)
            await until(server.server_state.tasks, 0)


@pytest.mark.parametrize("data", [2 * ASK, LAST], ids=["many", "last"])
@asynchronous
async def test_those_who_take_no_answer_make_room(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """The first that came goes, and whoever comes is answered."""
    monkeypatch.setattr(connection, "REQUEST_S", 10.0 * DEADLINE_S)  # none goes for being slow
    async with serving() as server:
        held = server.server_state.connections
        with contextlib.ExitStack() as stack:
            for number in range(MAX):
                await silent_client(server, stack, data)
                await until(held, number + 1)
            before = set(held)
            reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
            writer.write(b"HEAD" + LAST[3:])
            assert (await asyncio.wait_for(reader.read(), DEADLINE_S)).startswith(b"HTTP/1.1 200")
            await until(held, MAX - 1)
            writer.close()
            assert held < before


@asynchronous
async def test_answers_that_are_taken_renew_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is used lasts longer than the limit for one request, and one that is not ends with it."""
    monkeypatch.setattr(connection, "REQUEST_S", 1.0)
    async with serving() as server:
        reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
        began = time.monotonic()
        while time.monotonic() - began < 1.5 * connection.REQUEST_S:
            writer.write(ASK)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
            assert head.startswith(b"HTTP/1.1 200")
            assert await asyncio.wait_for(reader.readexactly(len(BODY)), DEADLINE_S) == BODY
        assert await asyncio.wait_for(reader.read(), DEADLINE_S) == b""
        writer.close()
