"""`thetad events`: print events from the daemon's history."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from service.cli._common import Exit, add_run, fail, number, printed_json
from service.cli._remote import add_control_flags
from service.cli.jobs.text import event_line
from service.cli.jobs.values import job_id
from service.cli.jobs.wait import connected
from service.protocol.endpoints import PATIENCE_S
from service.protocol.job_replies import MAX_EVENTS

if TYPE_CHECKING:
    from service.client import Jobs
    from service.protocol.job_replies import EventEntry


_PAUSE_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--arm", help="only events of this arm")
    parser.add_argument("--job", type=job_id, metavar="ID", help="only events of this job")
    parser.add_argument(
        "--limit", type=number(1, MAX_EVENTS, whole=True), default=100, metavar="N",
        help=f"the latest N, up to {MAX_EVENTS} (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--follow", "-f", action="store_true", help="go on with new ones until Ctrl-C")
    add_control_flags(parser)
    add_run(parser, run)


def run(args: argparse.Namespace) -> int:
    """Print events."""
    with connected(args) as jobs:
        events = jobs.events(args.arm, args.job, args.limit)
        if args.follow:
            for event in events:
                _print(args, event)
            _follow(jobs, args, max((event.id for event in events), default=0))
    if printed_json(args, {"events": events}):
        return Exit.OK
    for event in events:
        _print(args, event)
    if not events:
        fail("there are no such events" if args.arm or args.job else "there are no events yet")
    return Exit.OK


def _follow(jobs: Jobs, args: argparse.Namespace, last: int) -> None:
    """Print new events until interrupted, also across a restart of the daemon."""
    from service.client import ControlError, UnreachableError
    from service.client.control import may_retry

    def page(after: int) -> Sequence[EventEntry]:
        return jobs.events(args.arm, args.job, MAX_EVENTS, after)

    replied = time.monotonic()
    while True:
        time.sleep(_PAUSE_S)
        try:
            for event in new_events(page, last):
                _print(args, event)
                last = event.id
        except (UnreachableError, ControlError) as error:
            if not may_retry(error) or time.monotonic() - replied > PATIENCE_S:
                raise
        else:
            replied = time.monotonic()


def new_events(page: Callable[[int], Sequence[EventEntry]], last: int, full: int = MAX_EVENTS) -> Iterator[EventEntry]:
    """Yield the events after number `last`, in order; `page` returns up to `full` of those after a number."""
    while True:
        events = page(last)
        yield from events
        if len(events) < full:
            return
        last = events[-1].id


def _print(args: argparse.Namespace, event: EventEntry) -> None:
    if not printed_json(args, event):
        print(event_line(event), flush=True)
