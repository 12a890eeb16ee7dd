"""Take the pictures of docs/dashboard.md, of a real daemon with an arm of nine joints.

python -m docs._screenshots [FOLDER]      by default docs/images

On a machine that has nothing else to do: where the estimator falls behind, pages show old values, in grey.
"""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from service.client import Control
from service.config.load import parse_config
from service.supervisor.launch import DaemonProcess
from tests.lab.daemon.daemons import await_status
from tests.lab.web.browser import View, chromium

ROOT = Path(__file__).resolve().parents[1]
LEARNED_FRAMES = 45_000  # until most of the parameters are determined


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    ports = dict.fromkeys(("frames_port", "estimates_port", "control_port", "http_port"), 0)
    sim = {"kind": "sim", "settings": {"rate_hz": 1000, "seed": 1}, "motion": {"seed": 1}}
    panda = {"kind": "sim", "mode": "csp", "start": [0.0, 0.4, 0.0, 1.2, 0.0, 0.6, 0.0]}
    with tempfile.TemporaryDirectory() as name:
        table = {
            "daemon": {"name": "lab", "state_dir": f"{name}/state", "http": True, "http_role": "motion", **ports},
            "jobs": {"priority": "normal"},  # soon done
            "arm": [
                {"name": "snake", "robot": "arm9", "driver": sim, "recorder": {"directory": f"{name}/rec"}},
                {"name": "panda", "robot": "arm7", "driver": {**panda, "settings": {"rate_hz": 250}}},
            ],
        }
        with (
            DaemonProcess(parse_config(table, "screenshots", Path(name)), Path(name) / "log") as daemon,
            Control(daemon.endpoints["control"]) as control,
            chromium() as browser,
        ):
            url = daemon.endpoints["http"]
            done = "snake/acquisition"
            await_status(control, lambda found: found[done]["info"].get("frames", 0) > LEARNED_FRAMES, 300.0)
            desk, phone = View(browser, url), View(browser, url, phone=True, dark=True)

            def job(kind: str, **parameters: str) -> int:
                """Queue a job of the arm that moves; returns its number."""
                return int(control.request("submit", 30.0, kind=kind, arm="snake", parameters=parameters)["id"])

            def done_well(id: int) -> None:
                while (state := control.request("job", 30.0, id=id)["state"]) != "succeeded":
                    assert state in ("queued", "running"), control.request("job", 30.0, id=id)
                    time.sleep(0.2)

            def take(view: View, route: str, name: str, wait: str, seconds: float = 3.0, height: int = 0) -> None:
                page = view.open(route)
                page.locator(wait).first.wait_for()
                page.wait_for_timeout(1000.0 * seconds)
                more: Any = {}
                if height:  # further than the screen reaches
                    more = {"full_page": True, "clip": {"x": 0, "y": 0, "width": 360, "height": height}}
                page.screenshot(path=folder / f"dashboard-{name}.png", **more)

            take(desk, "arm/snake/estimates", "estimates", ".chart canvas", 15.0)
            take(desk, "", "fleet", ".card")
            take(desk, "arm/snake/signals", "signals", ".pose .tip", 16.0)
            take(desk, "arm/snake/friction", "friction", "[data-joint] canvas")
            take(desk, "arm/snake/learning", "learning", ".chart canvas", 10.0)
            take(phone, "arm/snake/estimates", "phone", ".chart canvas", 10.0, height=1000)
            phone.close()
            desk.page.goto("about:blank")  # drawing takes the processor that jobs, at low priority, want
            done_well(fitted := job("identify", recording="live:40", span="0:0.7"))
            done_well(job("promote", model=f"job:{fitted}", recording="live:10"))
            running = job("identify", recording="live:40", method="pso")
            take(desk, "jobs", "jobs", "tr[data-state=running] progress", 5.0)
            control.request("cancel", 30.0, id=running)
            take(desk, "models", "models", "[data-models=snake] tr[data-active=true]")
            take(desk, "arm/snake/torque", "torque", ".chart canvas", 16.0)
            take(desk, "arm/snake/bus", "bus", "table .bar")
            take(desk, "recordings", "recordings", "tbody th")
            take(desk, "events", "events", "tr[data-event=model_promoted]")
            page = desk.open("arm/panda")
            page.wait_for_timeout(2000.0)
            os.kill(daemon.pid, signal.SIGKILL)
            page.locator("#lost").wait_for()
            page.wait_for_timeout(1000.0)
            page.screenshot(path=folder / "dashboard-lost.png")
            desk.close()


if __name__ == "__main__":
    main()
