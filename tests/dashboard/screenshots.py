"""Take the pictures of docs/dashboard.md, of a real daemon with an arm of nine joints.

python -m tests.dashboard.screenshots [FOLDER]      by default docs/images
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

from service.client import Control
from service.config import parse_config
from service.launch import DaemonProcess
from tests.dashboard.browser import View, chromium
from tests.service.daemons import await_status

ROOT = Path(__file__).resolve().parents[2]
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

            def take(view: View, route: str, name: str, wait: str, seconds: float = 3.0) -> None:
                page = view.open(route)
                page.locator(wait).first.wait_for()
                page.wait_for_timeout(1000.0 * seconds)
                page.screenshot(path=folder / f"dashboard-{name}.png")

            take(desk, "arm/snake/estimates", "estimates", ".chart canvas", 15.0)
            take(desk, "", "fleet", ".card")
            take(desk, "arm/snake/friction", "friction", "[data-joint] canvas")
            take(desk, "arm/snake/learning", "learning", ".chart canvas", 10.0)
            take(phone, "arm/snake/estimates", "phone", ".chart canvas", 10.0)
            page = desk.open("arm/panda")
            page.wait_for_timeout(2000.0)
            os.kill(daemon.pid, signal.SIGKILL)
            page.locator("#lost").wait_for()
            page.wait_for_timeout(1000.0)
            page.screenshot(path=folder / "dashboard-lost.png")
            desk.close()
            phone.close()


if __name__ == "__main__":
    main()
