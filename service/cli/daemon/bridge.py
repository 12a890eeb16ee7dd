"""`thetad bridge`: show a running daemon in Foxglove, or describe it for ROS 2."""

import argparse
import importlib.util
import threading
from ipaddress import IPv4Address
from pathlib import Path

from service.cli._common import CliError, Exit, UnavailableError, add_run, fail, number, printed_json, read_help
from service.cli._remote import add_key_flags, key_of
from service.client import ESTIMATES, FRAMES, Subscriber

HELP = read_help(__file__)

MISSING = "thetad bridge foxglove needs Foxglove's SDK: pip install 'thetad[foxglove]'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    kinds = parser.add_subparsers(dest="kind", metavar="PROGRAM", required=True, parser_class=type(parser))
    foxglove = kinds.add_parser("foxglove", help="live, for Foxglove", description=HELP["foxglove"])
    _add_source_flags(foxglove)
    add_key_flags(foxglove)
    foxglove.add_argument("--arm", help="which arm (default: all)")
    foxglove.add_argument(
        "--rate", type=number(1e-6), default=50.0, metavar="HZ",
        help="at most so many frames, torques and estimates a second of each arm (default: %(default)g)",
    )  # fmt: skip
    foxglove.add_argument("--host", default="127.0.0.1", help="IPv4 address to listen at (default: %(default)s)")
    port = number(0, 65535, whole=True)
    foxglove.add_argument("--port", type=port, default=8765, help="default: %(default)s; 0: any free one")
    foxglove.add_argument(
        "--let-anyone-look", action="store_true", help="listen beyond loopback too, where nothing asks who is looking"
    )
    foxglove.add_argument("--seconds", type=number(1e-6), metavar="S", help="end after this time (default: never)")
    add_run(foxglove, run_foxglove)
    ros2 = kinds.add_parser("ros2", help="what a ROS 2 node needs to know", description=HELP["ros2"])
    _add_source_flags(ros2)
    ros2.add_argument("--arm", help="which arm (default: those of the configuration, or ARM in its place)")
    add_run(ros2, run_ros2)


def _add_source_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="the daemon's configuration, for its ports")
    for name, port in (("frames", 9870), ("estimates", 9871)):
        parser.add_argument(
            f"--{name}", metavar="ENDPOINT", help=f"{name} endpoint of the daemon (default: tcp://127.0.0.1:{port})"
        )


def run_foxglove(arguments: argparse.Namespace) -> int:
    """Serve viewers until stopped."""
    host = _address(arguments)
    if importlib.util.find_spec("foxglove") is None:
        raise CliError(MISSING)
    endpoints, _ = _sources(arguments)
    key = key_of(arguments)
    from service.bridge.conversion import MessageConverter
    from service.bridge.foxglove import BindError, FoxgloveServer
    from service.bridge.relay import relay
    from sim_backend.signals import stop_on_signals

    topics = [""] if arguments.arm is None else [f"{arguments.arm}/"]
    shaper, done = MessageConverter(arguments.rate), threading.Event()
    try:
        with (
            stop_on_signals(done.set),
            Subscriber(endpoints, topics, key=key) as stream,
            FoxgloveServer(host, arguments.port) as server,
        ):
            fail(f"Foxglove finds {stream.endpoint} at {server.url}")
            relayed = relay(stream, shaper, server, done, fail, arguments.seconds)
            result = {
                "url": server.url, "arms": shaper.arms, "seconds": relayed.seconds, "silences": relayed.silences,
                "messages": relayed.messages, "frames": shaper.counts["frame"], "estimates": shaper.counts["estimate"],
                "events": shaper.counts["event"], "lost": stream.lost,
                "invalid": stream.invalid + shaper.counts["unusable"], "left_out": shaper.left_out, "sent": server.sent,
                "viewers": server.viewers,
            }  # fmt: skip
    except BindError as error:
        raise UnavailableError(str(error)) from error
    if not printed_json(arguments, result):
        print(
            f"{', '.join(shaper.arms) or 'no arm'}: {result['frames']} frames, {result['estimates']} estimates, "
            f"{result['lost']} lost, {result['sent']} messages to {result['viewers']} viewers"
        )
    return Exit.OK if relayed.messages else Exit.NO


def run_ros2(arguments: argparse.Namespace) -> int:
    """Print the description."""
    from service.bridge.ros2 import description

    (frames, estimates), arms = _sources(arguments)
    found = description([arguments.arm] if arguments.arm else arms or ["ARM"], frames, estimates)
    if not printed_json(arguments, found):
        import yaml

        print(yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=120), end="")
    return Exit.OK


def _address(arguments: argparse.Namespace) -> str:
    try:
        address = IPv4Address(arguments.host)
    except ValueError:
        raise CliError(f"--host {arguments.host}: is not an IPv4 address") from None
    if not address.is_loopback and not arguments.let_anyone_look:
        raise CliError(
            f"--host {address}: anyone who reaches it could look; use 127.0.0.1 and an ssh tunnel, or --let-anyone-look"
        )
    return str(address)


def _sources(arguments: argparse.Namespace) -> tuple[tuple[str, str], list[str]]:
    """Return the endpoints of frames and estimates, and the arms of the configuration if there is one."""
    if arguments.config is None:
        return (arguments.frames or FRAMES, arguments.estimates or ESTIMATES), []
    from service.config.load import load_config

    config = load_config(arguments.config)
    daemon = config.daemon
    host = "127.0.0.1" if IPv4Address(daemon.bind).is_unspecified else daemon.bind
    found = []
    for name, port in (("frames", daemon.frames_port), ("estimates", daemon.estimates_port)):
        given = getattr(arguments, name)
        if given is None and port == 0:
            raise CliError(
                f"{arguments.config}: daemon.{name}_port is 0, any free port: give --{name} ENDPOINT as the daemon "
                "printed it"
            )
        found.append(given or f"tcp://{host}:{port}")
    return (found[0], found[1]), [arm.name for arm in config.arm]
