"""`thetad watch`: live table of the estimates of a running daemon."""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rt_core.statistics import NORMAL_QUANTILE_95
from service.cli._common import CliError, Exit, UnavailableError, add_run, breakaway_lines, number, print_json
from service.cli._remote import add_key_flags, key_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from service.client import BodyMessage, EstimateMessage, Message, Subscriber
    from service.operations.trend import Trend


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add = parser.add_argument
    add("--endpoint", default="tcp://127.0.0.1:9871", help="estimates endpoint of the daemon (default: %(default)s)")
    add_key_flags(parser)
    add("--arm", help="which arm (default: the first one heard)")
    add("--filter", metavar="TEXT", default="", help="only parameters with this in their name or status")
    add("--once", action="store_true", help="print the table once")
    add("--timeout", type=float, default=10.0, metavar="S", help="longest wait for an estimate (default: %(default)s)")
    add("--report", metavar="FILE", type=Path,
        help="write estimates over time and events here as a self-contained HTML page, at the end")  # fmt: skip
    add("--seconds", type=number(1e-6), metavar="S", help="watch for so long (default: until Ctrl-C)")
    add_run(parser, run)


_AROUND = 10  # lines of a screen around the rows of the table: title, heading, frame, number of the page


class View:
    """Latest messages of one arm."""

    def __init__(self, arm: str | None) -> None:
        self.arm = arm
        self.estimate: EstimateMessage | None = None
        self.meta: dict[str, Any] = {}
        self.status: dict[str, Any] = {}
        self.elastic: dict[str, dict[str, Any]] = {}  # latest state of each elastic joint, with the age of its row
        self.trend: Trend | None = None
        self.page = 0  # of the table on a terminal
        self._arrivals: deque[float] = deque(maxlen=100)

    def add(self, message: Message) -> None:
        """Store a message of this arm."""
        from service.client import BodyMessage, EstimateMessage

        if self.arm is None:
            self.arm = message.arm
        if message.arm != self.arm or message.envelope.src != "estimator":
            return
        if isinstance(message, EstimateMessage):
            self.estimate = message
            if self.trend is not None:
                self.trend.estimate(message)
            self._arrivals.append(time.monotonic())
        elif isinstance(message, BodyMessage):
            self._body(message)

    def _body(self, message: BodyMessage) -> None:
        if self.trend is not None:
            self.trend.body(message)
        if message.kind == "meta":
            self.meta = message.body
        elif message.kind == "status":
            self.status = message.body
        elif message.kind == "elastic":
            now = message.envelope.t_ns * 1e-9
            for joint, joint_report in message.body.get("joints", {}).items():
                row = joint_report.get("row_t")
                self.elastic[joint] = {**joint_report, "row_age_s": None if row is None else now - row}

    @property
    def complete(self) -> bool:
        """Whether the table can be drawn."""
        return self.estimate is not None and bool(self.meta)

    @property
    def rate_hz(self) -> float:
        """Rate of estimates as they arrive; 0 before the second one."""
        if len(self._arrivals) < 2:
            return 0.0
        return (len(self._arrivals) - 1) / max(1e-9, self._arrivals[-1] - self._arrivals[0])

    def summary(self, stream: Subscriber) -> dict[str, Any]:
        """Return all values of the table, for `--json`."""
        estimate = self.estimate
        if estimate is None:
            return {}
        names, units = self.meta.get("parameters", []), self.meta.get("units", [])
        parameters = [
            {
                "name": names[i] if i < len(names) else f"parameter {i}", "unit": units[i] if i < len(units) else "",
                "value": estimate.theta[i], "validated": estimate.validated[i], "std": estimate.std[i],
                "status": estimate.status[i], "excited": bool(estimate.excited[i]),
            }
            for i in range(len(estimate.theta))
        ]  # fmt: skip
        return {
            "arm": self.arm, "t": estimate.envelope.t_ns * 1e-9, "age_s": stream.age_s(estimate),
            "rate_hz": self.rate_hz, "lam": estimate.lam, "innovation": estimate.innovation,
            "frames": {
                "received": estimate.frames, "used": estimate.used, "masked": estimate.masked, "lost": estimate.lost,
            },
            "messages_lost": stream.lost, "source": self.status.get("source", "unknown"),
            "model": self.status.get("model"), "drift": self.status.get("drift"),
            "temperature": self.status.get("temperature"), "trust": self.status.get("trust"),
            "supply": self.status.get("supply"), "elastic": self.elastic,
            "breakaway": self.status.get("breakaway"), "hash": estimate.hash, "parameters": parameters,
        }  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from service.client import ClientTimeoutError, Subscriber

    arm, kinds = arguments.arm, ["estimate", "elastic", "meta", "status"]
    view = View(arm)
    if arguments.report is not None:
        from service.operations.trend import Trend

        kinds.append("event")
        view.trend = Trend()
    topics = [""] if arm is None else [f"{arm}/{kind}" for kind in kinds]
    with Subscriber(arguments.endpoint, topics, arguments.timeout, key=key_of(arguments)) as stream:
        deadline = time.monotonic() + arguments.timeout
        while not view.complete:
            try:
                view.add(stream.receive(max(0.0, deadline - time.monotonic())))
            except ClientTimeoutError as error:
                raise UnavailableError(_no_estimate(view, arguments)) from error
        shown = not (arguments.json or arguments.once)
        if shown or arguments.seconds is not None or view.trend is not None:
            try:
                follow(view, stream, arguments.seconds, shown=shown, wanted=arguments.filter)
            except KeyboardInterrupt:
                if view.trend is None:
                    raise
        if arguments.json:
            print_json(view.summary(stream))
        elif arguments.once:
            from rich.console import Console

            Console().print(table(view, stream, arguments.filter))
    if view.trend is not None:
        _write_report(arguments.report, view)
    return Exit.OK


def _write_report(path: Path, view: View) -> None:
    from drivers.files.atomic_write import write_text
    from service.reports.trend import trend_page

    assert view.trend is not None
    try:
        write_text(path, trend_page(str(view.arm), view.trend))
    except OSError as error:
        raise CliError(f"--report {path}: {error.strerror or error}") from error
    print(f"estimates of {view.arm} over time: {path}", file=sys.stderr)


def _no_estimate(view: View, arguments: argparse.Namespace) -> str:
    what = f"{arguments.endpoint}: no estimate within {arguments.timeout:g} s"
    if view.status:
        state, source = view.status.get("state"), view.status.get("source")
        return f"{what}; the estimator of {view.arm} is {state}, its source {source}"
    return f"{what}; is the daemon running{', and is there such an arm' if arguments.arm else ''}?"


def follow(view: View, stream: Subscriber, seconds: float | None, *, shown: bool, wanted: str = "") -> None:
    """Receive messages until interrupted or for some seconds; redraw the table if it is `shown`, in pages."""
    from rich.console import Console
    from rich.live import Live

    from service.client import ClientTimeoutError

    console = Console()
    end = float("inf") if seconds is None else time.monotonic() + seconds
    live = Live(table(view, stream, wanted, console), console=console, refresh_per_second=5) if shown else nullcontext()
    with _keys(shown and console.is_terminal) as typed, live as display:
        while (now := time.monotonic()) < end:
            until = min(now + 0.2, end)
            while (remaining := until - time.monotonic()) > 0.0:
                try:
                    view.add(stream.receive(remaining))
                except ClientTimeoutError:
                    break
            keys = typed()
            view.page += keys.count("n") + keys.count(" ") - keys.count("p")
            if display is not None:
                display.update(table(view, stream, wanted, console))


@contextmanager
def _keys(shown: bool) -> Iterator[Callable[[], str]]:
    """Yield what returns the keys typed meanwhile, if a terminal is `shown` to and the command has its foreground."""
    fd = sys.stdin.fileno() if shown and sys.stdin is not None and sys.stdin.isatty() else None
    foreground = False
    with suppress(OSError):  # a terminal, but not the one that controls this command
        foreground = fd is not None and os.tcgetpgrp(fd) == os.getpgrp()
    if fd is None or not foreground:
        yield lambda: ""
        return
    import termios
    import tty

    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield lambda: os.read(fd, 64).decode(errors="replace") if select.select([fd], [], [], 0.0)[0] else ""
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def table(view: View, stream: Subscriber, wanted: str = "", console: Console | None = None) -> Table:
    """Build the table of the latest messages, of parameters with `wanted` in name or status.

    On a terminal as `console` only the rows of the view's page, which is brought within the last one.
    """
    from rich.table import Table
    from rich.text import Text

    summary = view.summary(stream)
    frames, lam, drift = summary["frames"], summary["lam"], summary["drift"] or {}
    title = (
        f"{summary['arm']}  source {summary['source']}  t {summary['t']:.2f} s  {summary['rate_hz']:.0f} estimates/s  "
        f"age {summary['age_s'] * 1e3:.0f} ms  frames {frames['received']}  masked {frames['masked']}  "
        f"lost {frames['lost']}  λ {min(lam, default=1.0):.5f}..{max(lam, default=1.0):.5f}"
    )
    reasons = [(summary[what] or {}).get("reason") for what in ("temperature", "trust", "supply")]
    lines = [Text(f"active model {(summary['model'] or 'none')[:12]}, drift {drift.get('state', 'not known')}")]
    if drift.get("state") == "drifted":
        reasons.append(drift["reason"])
    lines += [Text(reason, style="red") for reason in reasons if reason]
    lines += [_spring(joint, joint_report) for joint, joint_report in sorted(summary["elastic"].items())]
    lines += [Text(line) for line in breakaway_lines(summary["breakaway"])]
    rows = [row for row in summary["parameters"] if wanted in f"{row['name']} {row['status']}"]
    if console is not None and console.is_terminal:
        step = max(1, console.height - _AROUND - len(lines))
        pages = max(1, -(-len(rows) // step))
        view.page = min(max(view.page, 0), pages - 1)
        rows = rows[view.page * step :][:step]
        lines += [Text(f"page {view.page + 1} of {pages}: n next, p previous")] if pages > 1 else []
    result = Table(title=title, title_justify="left", caption=Text("\n").join(lines), caption_justify="left")
    for name in ("parameter", "value", "± (95 %)", "unit", "status", "excited"):
        result.add_column(name, justify="right" if name in ("value", "± (95 %)") else "left")
    colours = {"estimated": "green", "invalid": "red", "doubted": "red", "starved": "red", "stale": "yellow"}
    for row in rows:
        result.add_row(
            Text(row["name"]), f"{row['value']:.5g}", f"{NORMAL_QUANTILE_95 * row['std']:.2g}", Text(row["unit"]),
            Text(row["status"], style=colours.get(row["status"], "")), "yes" if row["excited"] else "no",
        )  # fmt: skip
    return result


def _spring(joint: str, joint_report: dict[str, Any]) -> Text:
    """Return one line about an elastic joint: its stiffness, or why there is none."""
    from rich.text import Text

    k1 = joint_report["parameters"]["k1"]
    age = joint_report["row_age_s"]
    newest = "; no row since the start" if age is None else f"; latest row {age:.1f} s old"
    if k1["value"] is None:
        return Text(f"{joint}: k1 undetermined: {k1['reason']}{newest}")
    text = (
        f"{joint}: k1 {k1['value']:.5g} {k1['unit']}, 95 % {k1['lower']:.5g} to {k1['upper']:.5g}, {k1['status']}, "
        f"λ {joint_report['lam']:.5f}"
    )
    open_ = [name for name, parameter in joint_report["parameters"].items() if parameter["value"] is None]
    text += f"; undetermined: {', '.join(open_)}" if open_ else ""
    text += ("; the joint is changing" if joint_report["changing"] else "") + newest
    if joint_report["valid"]:
        return Text(text)
    return Text(f"{text}; not valid: {joint_report['reason']}", style="red")
