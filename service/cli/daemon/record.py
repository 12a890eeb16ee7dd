"""`thetad record`: start and stop the daemon's recorder, or record its frames on this machine."""

import argparse
import time
from pathlib import Path

from service.cli._common import Exit, UnavailableError, add_run, fail, printed_json
from service.cli._remote import add_control_flags, add_key_flags, key_of, request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for action in ("start", "stop"):
        sub = actions.add_parser(action, help=f"{action} the daemon's recorder")
        sub.add_argument("--arm", help="which arm, if there are several")
        add_control_flags(sub)
        add_run(sub, run_switch)
    to = actions.add_parser("to", help="record the stream of frames into a file here")
    to.add_argument("file", type=Path, help="the MCAP file; it must not exist")
    to.add_argument("--arm", required=True, help="which arm")
    to.add_argument("--seconds", type=float, metavar="S", help="stop after this time (default: at the end)")
    to.add_argument(
        "--endpoint", default="tcp://127.0.0.1:9870", help="frames endpoint of the daemon (default: %(default)s)"
    )
    add_key_flags(to)
    to.add_argument("--timeout", type=float, default=10.0, metavar="S", help="longest silence (default: %(default)s)")
    add_run(to, run_to)


def run_switch(arguments: argparse.Namespace) -> int:
    """Start or stop the daemon's recorder."""
    arm = {} if arguments.arm is None else {"arm": arguments.arm}
    result = request(arguments, "record", action=arguments.action, **arm)
    if not printed_json(arguments, result):
        state = "recording" if result["recording"] else "not recording"
        print(f"{result['arm']}: {state}, {result['path'] or result['directory']}")
    return Exit.OK


def run_to(arguments: argparse.Namespace) -> int:
    """Record from the stream; exit code 1 if frames were lost."""
    from drivers.files.recordings.recording import RecordingMeta, RecordingWriter
    from service.client import BodyMessage, ClientTimeoutError, FrameMessage, Subscriber

    arm = arguments.arm
    writer: RecordingWriter | None = None
    frames = 0
    topics = [f"{arm}/{kind}" for kind in ("meta", "status", "frame")]
    with Subscriber(arguments.endpoint, topics, arguments.timeout, key=key_of(arguments)) as stream:
        began = time.monotonic()
        try:
            while arguments.seconds is None or time.monotonic() - began < arguments.seconds:
                message = stream.receive()
                if isinstance(message, BodyMessage) and message.kind == "meta" and writer is None:
                    body = message.body
                    meta = RecordingMeta(
                        arm, tuple(body["joint_names"]), tuple(body["joint_units"]), body["rate_hz"],
                        message.envelope.clock,
                    )  # fmt: skip
                    writer = RecordingWriter(arguments.file, meta)
                    began = time.monotonic()
                elif isinstance(message, FrameMessage) and writer is not None:
                    writer.write(message.frame)
                    frames += 1
                elif isinstance(message, BodyMessage) and message.body.get("state") == "ended" and frames:
                    break
        except ClientTimeoutError as error:
            if writer is None:
                raise UnavailableError(f"{error}; is the daemon running, and is there an arm {arm!r}?") from error
            fail(f"{error}; the recording ends here")
        except KeyboardInterrupt:
            fail("interrupted; the recording ends here")
        finally:
            if writer is not None:
                writer.close()
        result = {"path": str(arguments.file), "frames": frames, "lost": stream.lost}
    if not printed_json(arguments, result):
        print(f"{result['path']}: {frames} frames, {stream.lost} lost")
    return Exit.NO if stream.lost else Exit.OK
