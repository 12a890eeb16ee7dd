"""`thetad jobs`: queue jobs of a running daemon, and show their state and results."""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drivers.files.atomic_write import write_bytes
from service.cli._common import (
    CliError,
    Exit,
    Parser,
    Run,
    add_action,
    add_run,
    fail,
    number,
    print_json,
    printed_json,
    read_help,
)
from service.cli._remote import add_control_flag, add_control_flags, is_wrong
from service.cli.jobs.text import job_text, jobs_text, one_line, title
from service.cli.jobs.values import duration, job_id, parse_parameters, read_parameters
from service.cli.jobs.wait import connected, wait_and_report
from service.protocol.endpoints import ANSWER_S
from service.protocol.job_replies import FINISHED, MAX_JOBS, JobSummary

if TYPE_CHECKING:
    from service.client import Jobs
    from service.protocol.job_replies import JobDetail

HELP = read_help(__file__)

STATES = ("queued", "running", "succeeded", "failed", "cancelled")


_PAIR = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=", re.ASCII)


class ActionParser(Parser):
    """Parser that accepts NAME=VALUE anywhere, also between options, for actions that take pairs."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse all arguments but the pairs, and add these."""
        if not self.get_default("takes_pairs"):
            return super().parse_known_args(args, namespace)
        words = list(sys.argv[1:] if args is None else args)
        pairs = [word for word in words if _PAIR.match(word)]
        found, rest = super().parse_known_args([word for word in words if not _PAIR.match(word)], namespace)
        found.pairs = [*found.pairs, *pairs]
        return found, rest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=ActionParser)
    submit = _add(actions, "submit", run_submit, "queue a job")
    _add_pairs(submit)
    add = submit.add_argument
    add("--arm", help="which arm of the daemon the job concerns")
    add("--after", type=job_id, nargs="+", action="extend", default=[], metavar="ID", help="only when these succeeded")
    add("--priority", type=int, default=0, metavar="N", help="jobs of higher priority run first (default: %(default)s)")
    add("--in", dest="due_s", type=duration, default=0.0, metavar="T", help="not before: 90, 10m, 2h")
    add("--time", type=duration, metavar="T", help="longest time of one attempt: 90, 10m, 2h")
    add("--memory", type=number(1e-6, 1e8), metavar="MB", help="most memory of one attempt [10^6 bytes]")
    add("--wait", action="store_true", help="wait for the job and print what it came to")
    here = add_action(actions, "run", "do a job here and now, without a daemon", HELP)
    _add_pairs(here)
    here.add_argument("--output", "-o", metavar="DIR", type=Path, required=True, help="write the results here")
    add_run(here, run_here)
    reidentify = _add(actions, "reidentify", run_reidentify, "identify an arm from its last frames, validate, promote")
    reidentify.add_argument("--arm", help="which arm; may be left out where there is only one")
    reidentify.add_argument("--no-promote", action="store_true", help="leave the active model as it is")
    reidentify.add_argument("--wait", action="store_true", help="wait for the jobs and print what they came to")
    listing = _add(actions, "list", run_list, "the latest jobs, latest first")
    add_listing = listing.add_argument
    add_listing("--state", nargs="+", choices=STATES, metavar="S", default=[], help=f"only {', '.join(STATES)}")
    add_listing("--arm", help="only those of this arm")
    add_listing("--kind", help="only those of this kind")
    add_listing("--limit", type=number(1, MAX_JOBS, whole=True), default=50, metavar="N",
                help=f"at most so many, up to {MAX_JOBS} (default: %(default)s)")  # fmt: skip
    show = _add(actions, "show", run_show, "all about one job: why it waits or failed, results, how to repeat it")
    show.add_argument("id", metavar="ID", type=job_id, help="number of the job")
    show.add_argument("--output", "-o", metavar="DIR", type=Path, help="copy its results into this folder")
    log = _add(actions, "log", run_log, "the end of a job's log")
    log.add_argument("id", metavar="ID", type=job_id, help="number of the job")
    log.add_argument("--follow", "-f", action="store_true", help="go on printing until the job has ended")
    cancel = _add(actions, "cancel", run_each, "cancel jobs that wait or run")
    for action in (cancel, _add(actions, "retry", run_each, "queue jobs again that failed or were cancelled")):
        action.add_argument("ids", metavar="ID", type=job_id, nargs="+", help="numbers of the jobs")
    wait = add_action(actions, "wait", "wait until jobs have ended", HELP)
    wait.add_argument("ids", metavar="ID", type=job_id, nargs="+", help="numbers of the jobs")
    add_control_flag(wait)
    wait.add_argument("--timeout", type=duration, metavar="T", help="longest wait (default: as long as it takes)")
    add_run(wait, run_wait)
    kinds = add_action(actions, "kinds", "which kinds of jobs there are, and their parameters", HELP)
    kinds.add_argument("kinds", metavar="KIND", nargs="*", help="only these")
    add_run(kinds, run_kinds)


def _add(actions: argparse._SubParsersAction[Any], name: str, run: Run, help_text: str) -> Any:
    """Add an action that makes a request of a daemon."""
    parser = add_action(actions, name, help_text, HELP)
    add_control_flags(parser)
    add_run(parser, run)
    return parser


def _add_pairs(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(takes_pairs=True)
    parser.add_argument("kind", metavar="KIND", help="what to do, such as identify")
    parser.add_argument("pairs", metavar="NAME=VALUE", nargs="*", help="parameters of the job")


def run_submit(args: argparse.Namespace) -> int:
    """Queue a job, and optionally wait for it."""
    from service.jobs.kinds import find_kind

    values = read_parameters(find_kind(args.kind), args.pairs)
    with connected(args) as jobs:
        queued = jobs.submit(
            args.kind, values, arm=args.arm, after=args.after, priority=args.priority, due_s=args.due_s,
            time_s=args.time, memory_mb=args.memory,
        )  # fmt: skip
        if args.wait:
            return wait_and_report(jobs, [queued.id], as_json=args.json)
    if not printed_json(args, queued):
        parts = f" in {queued.parts} parts" if queued.parts else ""
        print(f"job {queued.id}: {queued.kind}{parts}")
    return Exit.OK


def run_here(args: argparse.Namespace) -> int:
    """Do a job in this process."""
    from service.cli._progress import report_outcome, run_operation
    from service.jobs.kinds import find_kind

    kind = find_kind(args.kind)
    p = kind.read(parse_parameters(kind, args.pairs))
    args.output.mkdir(parents=True, exist_ok=True)
    if any(args.output.iterdir()):  # results of another run would stay beside those of this one
        raise CliError(f"{args.output}: is not empty: give another --output")
    outcome = run_operation(kind, p, args.output)
    return report_outcome(outcome, args, lambda found, folder: print(f"{found.summary}\nwritten to {folder}"))


def run_reidentify(args: argparse.Namespace) -> int:
    """Identify an arm again."""
    with connected(args) as jobs:
        ids = jobs.reidentify(args.arm, promote=not args.no_promote)
        if args.wait:
            return wait_and_report(jobs, ids, as_json=args.json)
    if not printed_json(args, {"ids": ids}):
        names = ("identify", "validate", "promote")
        print("\n".join(f"job {id}: {name}" for id, name in zip(ids, names, strict=False)))
    return Exit.OK


def run_list(args: argparse.Namespace) -> int:
    """Print the newest jobs."""
    from service.protocol.control import reply_as

    with connected(args) as jobs:
        more = {name: value for name, value in (("arm", args.arm), ("kind", args.kind)) if value is not None}
        if args.state:
            more["states"] = args.state
        found = jobs.control.request("jobs", args.timeout, limit=args.limit, **more)
    if found.get("trouble"):
        fail(f"no job runs now: {one_line(found['trouble'])}")
    if args.json:
        print_json(found)
    elif found["jobs"]:
        print(jobs_text(reply_as(list[JobSummary], found["jobs"])))
    else:
        fail("there are no such jobs" if more else "there are no jobs yet")
    return Exit.OK


def run_show(args: argparse.Namespace) -> int:
    """Print a job, and copy its results."""
    with connected(args) as jobs:
        job = jobs.job(args.id)
    copied = [] if args.output is None else copy_results(job, args.output)
    if not printed_json(args, job):
        print(job_text(job))
        for path in copied:
            print(f"copied      {path}")
    return Exit.NO if job.state in ("failed", "cancelled") else Exit.OK


def copy_results(job: JobDetail, folder: Path) -> list[Path]:
    """Copy the results of a job into `folder`, checked by hash; existing files with other content are not replaced.

    Raises `CliError`: there are none, one is damaged or not on this machine, or another file of that name is in the
    folder.
    """
    results = {} if job.outcome is None else job.outcome.results
    if not results:
        raise CliError(f"job {job.id} is {job.state} and has no results to copy", Exit.NO)
    contents: dict[str, bytes] = {}
    for name, result in results.items():
        try:
            contents[name] = Path(result.path).read_bytes()
        except OSError as error:
            raise CliError(f"{result.path}: result {name} cannot be read: {error.strerror}") from error
        if hashlib.sha256(contents[name]).hexdigest() != result.sha256:
            raise CliError(f"{result.path}: result {name} is damaged; `thetad jobs show` tells how to make it again")
        there = folder / name
        if there.exists() and (not there.is_file() or there.read_bytes() != contents[name]):
            raise CliError(f"{there}: already there, with other content; name another folder")
    for name, content in contents.items():
        write_bytes(folder / name, content)
    return [folder / name for name in contents]


def run_log(args: argparse.Namespace) -> int:
    """Print the end of a job's log."""
    if args.follow and args.json:
        raise CliError("--follow prints text as it comes, --json one object at the end: choose one")
    with connected(args) as jobs:
        job = jobs.job(args.id)
        if printed_json(args, {"id": job.id, "state": job.state, "log": job.log}):
            return Exit.OK
        print(job.log, end="", flush=True)
        if args.follow and job.state not in FINISHED:
            _follow(jobs, job.id, job.log)
    return Exit.OK


def _follow(jobs: Jobs, id: int, seen: str) -> None:
    def more(job: JobDetail) -> None:
        nonlocal seen
        print(new_text(seen, job.log), end="", flush=True)
        seen = job.log

    try:
        jobs.wait(id, on_progress=more)
    except KeyboardInterrupt:
        fail(f"job {id} goes on")
        raise


def new_text(seen: str, log: str) -> str:
    """Return the part of a log that was not seen yet; both texts are the last so many characters."""
    if log.startswith(seen):
        return log[len(seen) :]
    for overlap in range(min(len(seen), len(log)), 0, -1):
        if seen.endswith(log[:overlap]):
            return log[overlap:]
    return log


def run_each(args: argparse.Namespace) -> int:
    """Cancel or retry each job; refusals are printed on stderr and do not stop the rest."""
    from service.client import ControlError

    done: list[JobSummary] = []
    refused: ControlError | None = None
    with connected(args) as jobs:
        for id in dict.fromkeys(args.ids):
            try:
                done.append(jobs.cancel(id) if args.action == "cancel" else jobs.retry(id))
            except ControlError as error:
                if not is_wrong(error):
                    raise
                refused = error
                fail(error.message)
    if args.json and (done or refused is None):
        print_json({"jobs": done})
    elif not args.json:
        for job in done:
            stopping = job.state == "running" and args.action == "cancel"
            print(f"{title(job)}: {'is being stopped' if stopping else job.state}")
    return Exit.OK if refused is None else Exit.INPUT


def run_wait(args: argparse.Namespace) -> int:
    """Wait for jobs."""
    with connected(args, ANSWER_S) as jobs:
        return wait_and_report(jobs, list(dict.fromkeys(args.ids)), as_json=args.json, timeout_s=args.timeout)


def run_kinds(args: argparse.Namespace) -> int:
    """Print the kinds of jobs."""
    from service.cli.jobs._kinds import describe_kind, kind_text
    from service.jobs.kinds import KINDS, find_kind

    found = [describe_kind(find_kind(name)) for name in dict.fromkeys(args.kinds or KINDS)]
    if not printed_json(args, {"kinds": found}):
        print("\n\n".join(kind_text(kind) for kind in found))
    return Exit.OK
