"""Endless messages are cut off before memory grows."""

from __future__ import annotations

import contextlib
import socket
import struct
import time

import psutil
import pytest

from service.client import Control, Subscriber
from tests.daemon.sockets.test_hostile import shake_hands
from tests.lab.daemon.daemons import await_message, await_status, log_lines, processes
from tests.lab.daemon.shared import Keeper, Site
from tests.lab.daemon.sockets import LIMIT_MB, PAUSE, plain


@pytest.fixture(scope="module")
def running(keeper: Keeper) -> Site:
    return keeper.get(plain)


def send_without_end(endpoint: str, kind: str, part: bytes) -> int:
    """Send one message of ever more parts until the connection is closed; returns the bytes sent."""
    host, _, port = endpoint.removeprefix("tcp://").partition(":")
    block = part * (1 + 500_000 // len(part))
    sent = 0
    deadline = time.monotonic() + 60.0
    with socket.create_connection((host, int(port)), 30.0) as raw:
        shake_hands(raw, kind)
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < deadline:
                raw.sendall(block)
                sent += len(block)
    assert time.monotonic() < deadline, f"{sent} bytes were taken"
    return sent


def test_an_endless_subscription_ends_with_the_gateway(running: Site) -> None:
    """The gateway is started again within its limit, subscribers come back, and nobody else notices."""
    endpoints = running.endpoints
    with (
        Subscriber(endpoints["frames"], ["axis/frame"]) as frames,
        Control(endpoints["control"]) as control,
    ):
        await_message(frames)
        before = processes(control)["gateway"]["restarts"]
        assert send_without_end(endpoints["frames"], "SUB", b"\x01\xff" + bytes(255)) > 10_000_000
        found = await_status(
            control, lambda p: p["gateway"]["restarts"] == before + 1 and p["gateway"]["state"] == "ready"
        )
        assert f"larger than {LIMIT_MB:g} MB" in found["gateway"]["last_error"]
        assert psutil.Process(found["gateway"]["pid"]).memory_info().rss < LIMIT_MB * 1e6
        last = frames.counts["axis/frame", "acquisition"].expected
        await_message(frames, lambda message: message.envelope.seq > last)
        assert found["axis/estimator"]["info"]["lost"] % PAUSE == 0
        assert found["axis/estimator"]["restarts"] == found["axis/acquisition"]["restarts"] == 0


def test_an_endless_request_is_hung_up_on(running: Site) -> None:
    """The control socket is opened anew, gives its memory back, and clients that were there go on."""
    endpoint = running.endpoints["control"]
    with Control(endpoint) as control:
        before = control.request("status")["control"]["reopened"]
        part = b"\x03" + struct.pack(">Q", 200_000) + bytes(200_000)
        assert send_without_end(endpoint, "DEALER", part) > 10_000_000
        with Control(endpoint) as other:
            assert other.request("status", timeout_s=30.0)["control"]["reopened"] == before + 1
        assert control.request("ping", timeout_s=30.0)["pong"] is True
    assert psutil.Process(running.daemon.pid).memory_info().rss < LIMIT_MB * 1e6
    assert "control_reopened" in log_lines(running.path)
