"""The dashboard of a daemon in Chromium: views, live values, jobs, stops, a narrow screen, lost connections."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from drivers.files.robots.file import load_robot
from rt_core.model.frames import link_poses
from service.client import Control
from service.supervisor.launch import DaemonProcess
from tests.lab.daemon.daemons import await_status, config, processes, start
from tests.lab.daemon.runs import START, Client, arm
from tests.lab.web.browser import View, chromium

#: The title of each view, and what it has to show before it is judged.
VIEWS = {
    "": ("Fleet", ".card[data-arm=good] dd"),
    "arm/itself": ("itself", "tr[data-parameter] td"),
    "arm/itself/signals": ("itself", ".pose .tip"),
    "arm/itself/friction": ("itself", "[data-joint] canvas"),
    "arm/itself/learning": ("itself", "meter"),
    "arm/itself/torque": ("itself", ".chart canvas"),
    "arm/itself/bus": ("itself", "table .bar"),
    "arm/good": ("good", "tr[data-parameter=fv1]"),
    "jobs": ("Jobs", "#submit button"),
    "models": ("Models", "[data-models=itself]"),
    "recordings": ("Recordings", "[data-recorder=itself]"),
    "events": ("Events", "tr[data-event=daemon_ready]"),
}
#: Whether an estimate of the arm that moves by itself is shown.
ESTIMATED = "document.querySelector('tr[data-parameter=fv1] td')?.textContent.includes('±')"
#: Tables whose columns do not fit, by what they are called.
CUT = """[...document.querySelectorAll(".wide")].filter((each) => each.scrollWidth > each.clientWidth)
  .map((each) => `${each.getAttribute("aria-label")}: ${each.scrollWidth} of ${each.clientWidth}`)"""
#: Of some elements the texts of those that are not seen as a whole on a narrow screen.
BEYOND = """(all) => all.filter((each) => each.getBoundingClientRect().right > 360 || !each.offsetParent)
  .map((each) => each.textContent)"""
#: What each button would do, whether it cannot be pressed, and what is said of it.
BUTTONS = "[...document.querySelectorAll('button[data-verb]')].map((b) => [b.dataset.verb, b.disabled, b.title])"
#: The status that the daemon answers with, asked past the buttons.
ASKED = """(action) => fetch("/api/do", {
  method: "POST",
  headers: { "Content-Type": "application/json", "X-Thetad": "1" },
  body: JSON.stringify(action),
}).then((answer) => answer.status)"""
#: States by their tone, each with a sign before the word; a note of an error is a sentence.
TONES = """[...document.querySelectorAll("main .good, main .warn, main .bad")]
  .filter((each) => each.textContent && !each.closest("p")).map((each) => each.textContent.trim())"""
GRAVE = ("serious", "critical")  # of axe-core's impacts
SIGNED = re.compile(r"[^\w\s]\s\S")


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


def test_whoever_may_only_read_sees_everything_and_can_stop_the_arm(browser: Browser, tmp_path: Path) -> None:
    """The default role `read`: buttons of what it may not do are disabled, with the reason, and requests refused."""
    recorder = {"enabled": False, "directory": str(tmp_path / "rec")}
    settings = config(tmp_path, arm(tmp_path, "good", recorder=recorder), http=True, http_port=0)
    with start(settings, tmp_path) as running, closing(View(browser, running.endpoints["http"])) as view:
        buttons: dict[str, set[tuple[bool, str]]] = {}
        for route in ("", "arm/good", "arm/good/bus", "jobs", "models", "recordings", "events"):
            page = view.open(route)
            view.until("document.querySelector('main h1') && document.querySelectorAll('main > *').length > 1")
            if route in ("", "arm/good", "jobs", "recordings"):
                page.locator("main button[data-verb]").first.wait_for()
            for verb, disabled, title in page.evaluate(BUTTONS):
                buttons.setdefault(verb, set()).add((disabled, title))
        refusal = (True, "your role does not allow this (daemon.http_role)")
        assert buttons.pop("abort") == buttons.pop("disarm") == {(False, "")}
        assert {"arm", "record", "submit"} <= buttons.keys()
        assert all(found == {refusal} for found in buttons.values()), buttons
        assert "connected, read" in view.text("#link")
        page = view.open("arm/good")
        with Client(running.endpoints, "good") as client:
            client.arm()
            view.until("document.querySelector('main').textContent.includes('movement: armed')")
            page.get_by_role("button", name="Disarm").click()
            client.until("disarmed")
        assert view.complaints == []
        for action in ({"do": "arm", "arm": "good"}, {"do": "record", "arm": "good", "action": "start"}):
            assert page.evaluate(ASKED, action) == 403


def findings(view: View) -> list[tuple[object, ...]]:
    """Return what axe-core calls serious or critical: each theme, and each width, once."""
    found: list[tuple[object, ...]] = []
    for scheme, width in (("dark", 390), ("light", 1400)):
        view.page.set_viewport_size({"width": width, "height": 900})
        view.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        view.until(f"document.documentElement.dataset.theme === '{scheme}'")
        grave = [each for each in Axe().run(view.page).response["violations"] if each["impact"] in GRAVE]
        found += [(scheme, width, each["id"], each["nodes"][0]["html"]) for each in grave]
    return found


@pytest.mark.timeout(900)  # axe-core takes seconds a view
def test_every_view_opens_for_all_and_fits_a_narrow_screen(view: View) -> None:
    """States have a sign and a word besides their colour, lines of a chart a pattern; axe-core finds nothing grave."""
    found: set[str] = set()
    for route, (title, shown) in VIEWS.items():
        page = view.open(route)
        assert view.text("h1") == title
        page.locator(shown).first.wait_for()
        if route == "arm/itself":  # with the longest that its cells hold
            view.until(ESTIMATED)
        assert page.locator("#lost").is_hidden()
        page.wait_for_timeout(300)
        found |= set(page.evaluate(TONES))
        assert findings(view) == [], route
        page.set_viewport_size({"width": 360, "height": 740})
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, route
        assert page.evaluate(CUT) == [], route
        assert page.locator("td .good, td .warn, td .bad").evaluate_all(BEYOND) == [], route
    box = view.open("arm/good").get_by_role("button", name="Abort").bounding_box()
    assert (box["height"] >= 38.0, box["y"] + box["height"] < 740.0) == (True, True)  # a finger hits it, at once
    assert {"● at work", "● ready"} <= found
    assert [text for text in found if not SIGNED.match(text)] == []
    page = view.open("arm/itself/torque")
    page.locator(".chart canvas").first.wait_for()
    chart = """[...document.querySelectorAll(".u-legend .u-marker")].map((each) => {
      const style = getComputedStyle(each);
      return [style.borderTopColor, style.borderTopStyle];
    }).filter(([colour]) => colour)"""
    lines = page.evaluate(chart)
    assert len({style for _, style in lines}) > 1


def test_signals_are_in_the_unit_chosen_with_the_state_of_drives_in_words(view: View) -> None:
    """In rad and degrees, up to four in the chart, by the keyboard; and the picture is that of the pose."""
    page = view.open("arm/good/signals")
    first = page.locator("tr[data-joint=joint_1] button")
    first.first.wait_for()
    assert abs(float(first.first.locator("span").first.inner_text()) - START[0]) < 0.01
    page.get_by_label("Angles in").select_option("deg")
    assert abs(float(first.first.locator("span").first.inner_text()) - np.rad2deg(START[0])) < 0.5
    view.until("document.querySelector('tr[data-joint=joint_1]').textContent.includes('○ switch on disabled')")
    picked = page.locator("[data-picked]")
    assert picked.count() == 3  # the positions
    for k in (1, 2):  # of five the last four are drawn
        first.nth(k).focus()
        page.keyboard.press("Enter")
    assert picked.count() == 4
    assert page.locator(".u-legend .u-series").count() == 4
    page.locator(".pose .tip").wait_for()
    drawn = """async () => {
      const { places } = await import("/static/pose.js");
      const { live } = await import("/static/live.js");
      const { chain, tip } = live.prior;
      return places(chain, tip, live.sections.signals.q).map((each) => each.at);
    }"""
    poses = link_poses(load_robot("arm7").model, np.array([*START, 0.0, 0.0, 0.0, 0.0]))  # of the same first joints
    assert np.abs(np.array(page.evaluate(drawn))[:3] - poses[:3, :3, 3]).max() < 0.01


def test_a_theme_is_that_of_the_system_until_another_is_chosen(view: View) -> None:
    page, shown = view.open(""), "document.documentElement.dataset.theme"
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"{shown} === 'dark'")  # the page is told a moment later
    page.get_by_label("Theme").select_option("light")
    page.reload()
    assert page.evaluate(shown) == "light"


def test_a_warning_colours_the_tile_and_a_roll_back_needs_something_before(view: View) -> None:
    """And what operators read has no hashes: of states and histories that this daemon does not reach."""
    found = view.open("").evaluate(
        """async () => {
            const { standing } = await import("/static/views/fleet.js");
            const { before } = await import("/static/views/models.js");
            const { plain } = await import("/static/views/events.js");
            const [good, doubted] = [{ problems: [] }, { problems: [], trust: { reason: "torque is not explained" } }];
            const up = (model, previous) => ({ action: "promoted", model, previous });
            const back = (model, previous) => ({ action: "rolled_back", model, previous });
            const text = "model 0123456789ab promoted after 123456789012 ns, not fedcba987654";
            const [first, second] = [up("a", null), up("b", "a")];
            return [
                [doubted, good, { ...doubted, problems: ["silent"] }].map((each) => standing(each)[2]),
                [before(null, []), before("a", [first]), before("b", [first, second]),
                 before("a", [first, second, back("a", "b")]), before(null, [first, back(null, "a")])],
                plain(text, { "0123456789abcdef": 7 }),
            ];
        }"""
    )
    assert found == [
        ["warn", "good", "bad"],
        [[], [None], ["a"], [None], []],
        "model of job 7 promoted after 123456789012 ns, not …",
    ]


def test_whatever_moves_an_arm_can_be_stopped(view: View) -> None:
    buttons, moves = view.open("").evaluate(
        """async () => {
            const { armButtons, movement } = await import("/static/views/fleet.js");
            const verbs = (arm) => [...(armButtons({ name: "x", ...arm })?.querySelectorAll("button") ?? [])]
                .map((button) => button.dataset.verb);
            const moves = [true, false].map((silent) => movement({ silent, safety: { state: "armed" } }));
            const buttons = [{ safety: { state: "armed" } }, { motion: { state: "running" } }, {}].map(verbs);
            return [buttons, moves];
        }"""
    )
    assert buttons == [["abort", "arm", "disarm"], ["disable"], []]
    assert moves == ["not known; last heard: armed", "armed"]


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
        view.until("document.querySelector('main').textContent.includes('The drives are on; permit')")
        page.get_by_role("button", name="Disarm").click()
        client.until("disarmed")
        view.until("!document.querySelector('main').textContent.includes('permit')")


def test_a_job_is_submitted_and_its_model_promoted(view: View, daemon: DaemonProcess) -> None:
    with Control(daemon.endpoints["control"]) as control:  # as many frames as the job is to take
        await_status(control, lambda found: found["itself/acquisition"]["info"].get("frames", 0) > 17 * 250)
    page = view.open("jobs")
    page.locator("select[name=arm]").select_option("itself")
    page.locator("input[name=seconds]").fill("16")
    page.locator("input[name=span]").fill("0:0.5")
    page.get_by_role("button", name="Submit").click()
    view.until("document.getElementById('said').textContent.includes('is queued')")
    (number,) = re.findall(r"job (\d+)", view.text("#said"))
    row = page.locator(f"tr[data-job='{number}']")
    row.wait_for()
    page.locator(f"tr[data-job='{number}'][data-state=succeeded]").wait_for(timeout=60_000)
    assert "relative torque error" in row.inner_text()
    row.get_by_role("link").click()
    assert page.locator("pre").first.inner_text() != ""
    assert findings(view) == []
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


def test_a_daemon_that_is_away_is_shown_as_such_and_seen_when_it_is_back(
    browser: Browser, daemon: DaemonProcess
) -> None:
    lost = "No connection to the daemon. Values are from"
    with closing(View(browser, daemon.endpoints["http"])) as view:  # whose console may complain of failed requests
        page = view.open("arm/good")
        view.until("document.querySelectorAll('tr[data-parameter]').length > 10")
        with Control(daemon.endpoints["control"]) as control:
            web = processes(control)["web"]["pid"]
        os.kill(web, signal.SIGSTOP)
        try:
            page.locator("#lost", has_text=lost).wait_for()
            assert page.get_by_role("button", name="Abort").is_disabled()
            assert page.evaluate("getComputedStyle(document.querySelector('main .live')).filter") == "grayscale(1)"
        finally:
            os.kill(web, signal.SIGCONT)
        page.locator("#lost").wait_for(state="hidden")
        view.until("!document.querySelector('button[data-verb=abort]').disabled")
        page.route("**/api/**", lambda route: route.abort("connectionrefused"))
        page.locator("#lost", has_text=lost).wait_for()
        assert page.get_by_role("button", name="Arm", exact=True).is_disabled()
        assert "✕ not connected" in view.text("#link")
        page.unroute_all(behavior="wait")
    assert all("Failed to load resource" in text for text in view.complaints)
