"""A real browser, headless, that looks at a daemon's dashboard and keeps every complaint."""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

#: Where the system's own browser is: none is fetched from elsewhere.
CHROMIUM = os.environ.get("THETAD_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
DEADLINE_S = 30.0
_PHONE, _DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
#: Let a violation of the content security policy be an error of the page.
_WATCH = """document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`);
});"""


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser; skips the test where there is none."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium: install it (apt: chromium), or name it in THETAD_CHROMIUM")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


class View:
    """A page of the dashboard; `complaints` are errors of the console, of scripts, and of the security policy."""

    def __init__(self, browser: Browser, url: str, *, phone: bool = False, dark: bool = False) -> None:
        self.url = url
        self.complaints: list[str] = []
        self.context = browser.new_context(
            viewport=_PHONE if phone else _DESK,  # type: ignore[arg-type]
            color_scheme="dark" if dark else "light",
            has_touch=phone,
            locale="en-GB",
        )
        self.context.set_default_timeout(1000.0 * DEADLINE_S)
        self.page: Page = self.context.new_page()
        self.page.add_init_script(_WATCH)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        self.page.on("dialog", lambda dialog: dialog.accept())

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(f"console: {message.text}")

    def open(self, route: str = "") -> Page:
        """Open the view of that name, and wait until the daemon has answered."""
        self.page.goto(f"{self.url}/#/{route}")
        self.until("document.getElementById('link').textContent.startsWith('●')")
        return self.page

    def until(self, expression: str) -> None:
        """Wait until an expression is true on the page; its policy forbids playwright's own way to do that."""
        deadline = time.monotonic() + DEADLINE_S
        while not self.page.evaluate(expression):
            assert time.monotonic() < deadline, (expression, self.page.inner_text("body"))
            self.page.wait_for_timeout(50)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def close(self) -> None:
        self.context.close()
