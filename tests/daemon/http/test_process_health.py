"""Health by HTTP while a process is stopped or killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from service.client import Control
from tests.lab.daemon.daemons import await_status, processes
from tests.lab.daemon.shared import Keeper
from tests.lab.web.http_client import ask, await_answer, scrape, value
from tests.lab.web.http_daemon import Running, two_arms

LATENCY = "thetad_estimate_latency_seconds"


@pytest.fixture(scope="module")
def running(keeper: Keeper) -> Running:
    return keeper.get(two_arms)


@pytest.fixture
def control(running: Running) -> Iterator[Control]:
    with running.control() as control:
        yield control


def test_a_stopped_estimator_makes_its_arm_not_ready(running: Running, control: Control) -> None:
    url, pid = running.url, processes(control)["axis/estimator"]["pid"]
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


def slower_than_a_second(families: Any) -> float:
    """Return how many estimates came later than a second after their frame."""
    within = value(families, f"{LATENCY}_bucket", arm="axis", le="1")
    return value(families, f"{LATENCY}_count", arm="axis") - within


def test_a_killed_acquisition_makes_its_arm_not_ready_and_its_counters_begin_again(
    running: Running, control: Control
) -> None:
    url, before = running.url, processes(control)["axis/acquisition"]
    while (published := value(scrape(url), "thetad_frames_published_total", arm="axis")) < 5000.0:
        time.sleep(0.1)  # more than there will be soon after
    slow = slower_than_a_second(scrape(url))  # while something was stopped
    os.kill(before["pid"], signal.SIGKILL)
    answer = await_answer(url, "/readyz", lambda answer: b"the acquisition is" in answer.body)
    assert (answer.status, answer.json["arms"][0]["ready"]) == (503, False)
    await_status(control, lambda found: found["axis/acquisition"]["state"] == "ready")
    control.request("start", arm="axis")
    await_answer(url, "/readyz", lambda answer: answer.status == 200)
    families = scrape(url)
    assert value(families, "thetad_frames_published_total", arm="axis") < published
    assert value(families, "thetad_process_restarts_total", process="axis/acquisition") == before["restarts"] + 1
    enough = value(families, f"{LATENCY}_count", arm="axis") + 2.0
    while value(families, f"{LATENCY}_count", arm="axis") < enough:
        families = scrape(url)
    assert slower_than_a_second(families) == slow  # the time without a source is no latency
    assert value(families, "thetad_source_epochs_total", arm="axis", reader="estimator") == before["restarts"] + 2


def test_a_killed_web_process_is_back_at_its_port(running: Running, control: Control) -> None:
    before = processes(control)["web"]
    os.kill(before["pid"], signal.SIGKILL)
    found = await_status(
        control, lambda now: now["web"]["restarts"] > before["restarts"] and now["web"]["state"] == "ready"
    )
    assert all(process["restarts"] == 0 for name, process in found.items() if name not in ("web", "axis/acquisition"))
    await_answer(running.url, "/readyz", lambda answer: answer.status == 200)
    assert value(scrape(running.url), "thetad_process_restarts_total", process="web") == before["restarts"] + 1


def test_a_stopped_supervisor_is_no_health(running: Running) -> None:
    url = running.url
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
