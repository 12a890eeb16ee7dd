"""The dashboard in a real Chromium, beside a real daemon: views, live values, jobs, a stop, a phone, a dead daemon."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from service.client import Control
from service.launch import DaemonProcess
from tests.dashboard.browser import View, chromium
from tests.service.daemons import await_status, config, processes, start
from tests.service.runs import Client, arm

VIEWS = {
    "": "Fleet",
    "arm/itself": "itself",
    "arm/itself/friction": "itself",
    "arm/itself/learning": "itself",
    "arm/itself/torque": "itself",
    "arm/itself/bus": "itself",
    "arm/good": "good",
    "jobs": "Jobs",
    "models": "Models",
    "recordings": "Recordings",
    "events": "Events",
}
#: What each of them has to show before it is judged.
SHOWN = {
    "": ".card[data-arm=good] dd",
    "arm/itself": "tr[data-parameter] td",
    "arm/itself/friction": "[data-joint] canvas",
    "arm/itself/learning": "meter",
    "arm/itself/torque": ".chart canvas",
    "arm/itself/bus": "table .bar",
    "arm/good": "tr[data-parameter=fv1]",
    "jobs": "#submit button",
    "models": "[data-models=itself]",
    "recordings": "[data-recorder=itself]",
    "events": "tr[data-event=daemon_ready]",
}
#: Tables whose columns do not fit, by what they are called.
CUT = """[...document.querySelectorAll(".wide")].filter((each) => each.scrollWidth > each.clientWidth)
  .map((each) => `${each.getAttribute("aria-label")}: ${each.scrollWidth} of ${each.clientWidth}`)"""
#: Of some elements the texts of those that are not seen as a whole on a narrow screen.
BEYOND = """(all) => all.filter((each) => each.getBoundingClientRect().right > 360 || !each.offsetParent)
  .map((each) => each.textContent)"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """An arm that runs are commanded to, and one that moves by itself; who asks by HTTP may arm."""
    path = tmp_path_factory.mktemp("browser")
    alone = {
        "mode": None,
        "start": None,
        "faults": [],
        "motion": {"seed": 3, "candidates": 1, "base_frequency_hz": 0.2},
    }
    arms = [
        arm(path, "good"),
        arm(path, "itself", driver=alone, recorder={"enabled": False, "directory": str(path / "rec")}),
    ]
    with start(config(path, *arms, http=True, http_port=0, http_role="motion"), path) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def view(browser: Browser, daemon: DaemonProcess) -> Iterator[View]:
    found = View(browser, daemon.endpoints["http"])
    yield found
    found.close()
    assert found.complaints == []


def test_every_view_opens_and_shows_what_it_is_for(view: View) -> None:
    for route, title in VIEWS.items():
        page = view.open(route)
        assert view.text("h1") == title
        page.locator(SHOWN[route]).first.wait_for()
        assert page.locator("#lost").is_hidden()


def test_live_values_change_and_undetermined_ones_have_none(view: View) -> None:
    page = view.open("arm/itself")
    value = page.locator("tr[data-parameter=fv1] td").first
    view.until("document.querySelector('tr[data-parameter=fv1] td')?.textContent.includes('±')")
    seen = {value.inner_text()}
    for _ in range(100):
        page.wait_for_timeout(50)
        seen.add(value.inner_text())
        if len(seen) > 3:
            break
    assert len(seen) > 3
    page.locator(".chart canvas").first.wait_for()
    page = view.open("arm/good")  # an arm that has never moved
    view.until("document.querySelectorAll('tr[data-parameter]').length > 10")
    first = page.locator("tr[data-parameter=fv1] td")
    assert first.nth(0).inner_text() == ""
    assert first.nth(1).inner_text() not in ("", "–")  # what the description says is there
    assert "no estimate heard yet" in first.nth(2).inner_text()  # which is no verdict on the data


def test_a_job_is_submitted_and_its_model_promoted(view: View, daemon: DaemonProcess) -> None:
    with Control(daemon.endpoints["control"]) as control:  # as many frames as the job is to take
        await_status(control, lambda found: found["itself/acquisition"]["info"].get("frames", 0) > 17 * 250)
    page = view.open("jobs")
    page.locator("select[name=arm]").select_option("itself")
    page.locator("input[name=seconds]").fill("16")
    page.locator("input[name=span]").fill("0:0.5")
    page.get_by_role("button", name="Submit").click()
    view.until("document.getElementById('said').textContent.includes('is queued')")
    row = page.locator("tr[data-job='1']")
    row.wait_for()
    page.locator("tr[data-job='1'][data-state=succeeded]").wait_for(timeout=60_000)
    assert "relative torque error" in row.inner_text()
    row.get_by_role("link").click()
    assert page.locator("pre").first.inner_text() != ""
    page.locator("input[name=promote-seconds]").fill("6")
    page.get_by_role("button", name="Promote if better").click()
    view.until("document.getElementById('said').textContent.includes('promote is queued')")
    page.get_by_role("link", name="Models").click()
    page.locator("[data-models=itself] [data-active=true]").wait_for(timeout=60_000)
    assert "★ active" in view.text("[data-models=itself] tr[data-active=true]")
    page.get_by_role("link", name="Events").click()
    page.locator("tr[data-event=model_promoted]").wait_for()
    page.get_by_role("link", name="Models").click()
    page.get_by_role("button", name="Roll back").click()
    view.until("document.getElementById('said').textContent.includes('active is no model')")
    page.locator("[data-models=itself] [data-active=false]").wait_for()


def test_abort_stops_a_run_and_arming_gives_a_permit(view: View, daemon: DaemonProcess) -> None:
    page = view.open("arm/good")
    with Client(daemon.endpoints, "good") as client:
        client.arm()
        client.run(periods=20)
        client.until("running")
        view.until("document.querySelector('main').textContent.includes('movement: running')")
        page.get_by_role("button", name="Abort").click()
        done = client.until("disarmed")
        assert (done["run"]["outcome"], done["reason"]) == ("stopped", "aborted by request")
        view.until("document.querySelector('main').textContent.includes('movement: disarmed')")
        view.until(
            "!document.getElementById('said').textContent.includes('refused') && "
            "document.getElementById('said').textContent.startsWith('Abort')"
        )
        for _ in range(100):  # they may still be stopping
            page.get_by_role("button", name="Arm", exact=True).click()
            view.until("document.getElementById('said').textContent.startsWith('Arm')")
            if "permit" in view.text("#said"):
                break
            page.wait_for_timeout(100)
        assert "the drives are on; permit" in view.text("#said")
        view.until("document.querySelector('main').textContent.includes('movement: armed')")
        assert "The drives are on; permit" in view.text("main")  # whatever is said at the top meanwhile
        page.get_by_role("button", name="Disarm").click()
        client.until("disarmed")
        view.until("!document.querySelector('main').textContent.includes('permit')")


def test_recording_is_switched_on_and_off(view: View) -> None:
    page = view.open("recordings")
    card = page.locator("[data-recorder=itself]")
    card.get_by_role("button", name="Record", exact=True).click()
    card.get_by_text("● recording").wait_for()
    page.locator("tbody th", has_text="itself-").first.wait_for()
    card.get_by_role("button", name="Stop recording").click()
    card.get_by_text("○ off").wait_for()


def test_a_narrow_screen_need_not_be_scrolled_sideways(browser: Browser, daemon: DaemonProcess) -> None:
    view = View(browser, daemon.endpoints["http"], phone=True)
    try:
        for route, title in VIEWS.items():
            page = view.open(route)
            assert view.text("h1") == title
            page.locator(SHOWN[route]).first.wait_for()
            if route == "arm/itself":  # with the longest that its cells hold
                view.until("document.querySelector('tr[data-parameter=fv1] td')?.textContent.includes('±')")
            page.wait_for_timeout(300)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, route
            assert page.evaluate(CUT) == [], route
            assert page.locator("td .good, td .warn, td .bad").evaluate_all(BEYOND) == [], route
        stop = view.open("arm/good").get_by_role("button", name="Abort")
        box = stop.bounding_box()
        assert box is not None
        assert box["height"] >= 38.0  # a finger hits it
        assert box["y"] + box["height"] < 740.0  # without scrolling
    finally:
        view.close()
    assert view.complaints == []


def test_a_daemon_that_is_away_is_shown_as_such_and_seen_when_it_is_back(
    browser: Browser, daemon: DaemonProcess
) -> None:
    view = View(browser, daemon.endpoints["http"])  # whose console may complain of failed requests
    try:
        page = view.open("arm/good")
        view.until("document.querySelectorAll('tr[data-parameter]').length > 10")
        with Control(daemon.endpoints["control"]) as control:
            web = processes(control)["web"]["pid"]
            os.kill(web, signal.SIGSTOP)
            try:
                page.locator("#lost", has_text="No connection to the daemon. Values are from").wait_for()
                assert page.get_by_role("button", name="Abort").is_disabled()
                assert page.evaluate("getComputedStyle(document.querySelector('main .live')).opacity") == "0.45"
            finally:
                os.kill(web, signal.SIGCONT)
            page.locator("#lost").wait_for(state="hidden")
            view.until("!document.querySelector('button[data-verb=abort]').disabled")
        os.kill(daemon.pid, signal.SIGKILL)
        page.locator("#lost", has_text="No connection to the daemon. Values are from").wait_for()
        assert page.get_by_role("button", name="Arm", exact=True).is_disabled()
        assert "✕ not connected" in view.text("#link")
    finally:
        view.close()
    assert all("Failed to load resource" in text for text in view.complaints)
