"""Health by HTTP while a process is stopped or killed."""

from __future__ import annotations

import os
import signal
import time

from service.client import Control, Subscriber
from tests.lab.daemon.daemons import DEADLINE_S, await_message, await_status, processes
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


def more_estimates(url: str) -> tuple[float, float]:
    """Wait for two more estimates; return the sum of all latencies before and after them [s]."""
    began, deadline = scrape(url), time.monotonic() + DEADLINE_S
    count, total = (f"thetad_estimate_latency_seconds_{what}" for what in ("count", "sum"))
    now = began
    while value(now, count, arm="axis") < value(began, count, arm="axis") + 2.0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        now = scrape(url)
    return value(began, total, arm="axis"), value(now, total, arm="axis")


def test_a_killed_acquisition_makes_its_arm_not_ready_and_its_counters_begin_again(
    running: Running, url: str, control: Control
) -> None:
    """The time without a source is no latency: all latencies since then are less than it, on a busy machine too."""
    before, deadline = processes(control)["axis/acquisition"], time.monotonic() + DEADLINE_S
    while (published := value(scrape(url), "thetad_frames_published_total", arm="axis")) < 5000.0:
        time.sleep(0.1)  # more than there will be soon after
    while (latencies := more_estimates(url))[1] - latencies[0] > 0.5:
        assert time.monotonic() < deadline  # of an estimator that was stopped before
    with Subscriber(running.endpoints["frames"], ["axis/frame"]) as frames:
        last = first = await_message(frames).envelope
        os.kill(before["pid"], signal.SIGKILL)
        answer = await_answer(url, "/readyz", lambda answer: b"the acquisition is" in answer.body)
        assert (answer.status, answer.json["arms"][0]["ready"]) == (503, False)
        await_status(control, lambda found: found["axis/acquisition"]["state"] == "ready")
        control.request("start", arm="axis")
        while first.epoch == last.epoch:
            last, first = first, await_message(frames).envelope
    await_answer(url, "/readyz", lambda answer: answer.status == 200)
    families = scrape(url)
    assert value(families, "thetad_frames_published_total", arm="axis") < published
    assert value(families, "thetad_process_restarts_total", process="axis/acquisition") == before["restarts"] + 1
    assert more_estimates(url)[1] - latencies[1] < 1e-9 * (first.t_host_ns - last.t_host_ns)
    assert value(scrape(url), "thetad_source_epochs_total", arm="axis", reader="estimator") == before["restarts"] + 2


def test_a_killed_web_process_is_back_at_its_port(url: str, control: Control) -> None:
    before = processes(control)["web"]
    os.kill(before["pid"], signal.SIGKILL)
    found = await_status(
        control, lambda now: now["web"]["restarts"] > before["restarts"] and now["web"]["state"] == "ready"
    )
    assert all(process["restarts"] == 0 for name, process in found.items() if name not in ("web", "axis/acquisition"))
    await_answer(url, "/readyz", lambda answer: answer.status == 200)
    assert value(scrape(url), "thetad_process_restarts_total", process="web") == before["restarts"] + 1


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
