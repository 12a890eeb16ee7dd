"""Health by HTTP while a process is stopped or killed."""

import os
import signal

from service.client import Control
from tests.lab.daemon.daemons import processes
from tests.lab.web.http_client import ask, await_answer, scrape, value
from tests.lab.web.http_daemon import Running


def test_a_stopped_estimator_makes_its_arm_not_ready(url: str, control: Control) -> None:
    pid = processes(control)["axis/estimator"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        answer = await_answer(url, "/readyz", lambda answer: answer.status == 503)
        axis, over = answer.json["arms"]
        assert (axis["ready"], over["ready"]) == (False, True)
        assert "the estimator has" in axis["problems"][0]
        assert ask(url, "/healthz").status == 200
        assert value(scrape(url), "thetad_arm_ready", arm="axis") == 0.0
    finally:
        os.kill(pid, signal.SIGCONT)
    await_answer(url, "/readyz", lambda answer: answer.status == 200)


def test_a_stopped_supervisor_is_no_health(running: Running, url: str) -> None:
    os.kill(running.daemon.pid, signal.SIGSTOP)
    try:
        answer = await_answer(url, "/healthz", lambda answer: answer.status == 503)
        assert answer.json["status"] == "failed"
        assert "the supervisor has been silent for" in answer.json["reason"]
        ready = ask(url, "/readyz")
        assert (ready.status, ready.json["reason"][:14]) == (503, "the supervisor")
        assert value(scrape(url), "thetad_supervisor_silence_seconds") > 3.0
    finally:
        os.kill(running.daemon.pid, signal.SIGCONT)
    await_answer(url, "/healthz", lambda answer: answer.status == 200)
    await_answer(url, "/readyz", lambda answer: answer.status == 200)
