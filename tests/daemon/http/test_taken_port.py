"""A daemon whose HTTP port is taken at first, and that answers by HTTP until its very end."""

import contextlib
import os
import signal
import socket
import time
from pathlib import Path

from service.client import Control
from tests.lab.daemon.daemons import await_status, config, make_recording, processes, replayed, start
from tests.lab.web.http_client import ask, await_answer, scrape, value


def test_by_default_http_waits_until_its_port_is_free(tmp_path: Path) -> None:
    """And a daemon that stops is alive, and not ready."""
    arm = replayed(make_recording(tmp_path / "rec.mcap"), loop=True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        daemon = start(config(tmp_path, arm, http=None, http_port=port), tmp_path)
        with contextlib.ExitStack() as stack:
            stack.enter_context(daemon)
            control = stack.enter_context(Control(daemon.endpoints["control"]))
            found = await_status(control, lambda now: now["web"]["restarts"] > 1)
            kept = stack.pop_all()
    with kept:
        assert f"cannot bind 127.0.0.1:{port}" in found["web"]["last_error"]
        assert {name for name, process in found.items() if process["state"] != "ready"} == {"web"}
        assert control.request("status")["events"]["process_ended"] == 1  # it is told once
        await_status(control, lambda now: now["web"]["state"] == "ready")
        url = daemon.endpoints["http"]
        await_answer(url, "/readyz", lambda answer: answer.status == 200)
        os.kill(processes(control)["axis/acquisition"]["pid"], signal.SIGSTOP)  # the others wait for it
        os.kill(daemon.pid, signal.SIGTERM)
        answer = await_answer(url, "/readyz", lambda answer: answer.json["status"] == "stopping")
        assert (answer.status, answer.json["reason"]) == (503, "the daemon stops")
        assert value(scrape(url), "thetad_arm_ready", arm="axis") == 0.0
        with contextlib.suppress(ConnectionError):  # longer than a supervisor may be silent otherwise
            while (answer := ask(url, "/healthz")).status == 200:
                assert answer.json == {"status": "stopping"}
                time.sleep(0.1)
        assert answer.status == 200, answer
        assert daemon.wait(30.0) == 0
