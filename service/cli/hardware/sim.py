"""`thetad sim`: simulated hardware for rehearsals: servo drives on an Ethernet interface, a virtual cable, a PLC."""

import argparse
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from service.cli._common import CliError, Exit, add_run, print_json, printed_json, read_help

HELP = read_help(__file__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    from sim_backend.ethercat.link import MASTER_END, SEGMENT_END

    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True, parser_class=type(parser))
    link = what.add_parser("link", help="make or remove a virtual cable", description=HELP["link"])
    link.add_argument("action", choices=("up", "down"))
    link.add_argument("--ends", nargs=2, default=(MASTER_END, SEGMENT_END), metavar=("MASTER", "SEGMENT"),
                      help="names of the two interfaces (default: %(default)s)")  # fmt: skip
    add_run(link, run_link)
    ethercat = what.add_parser("ethercat", help="simulated servo drives", description=HELP["ethercat"])
    ethercat.add_argument("segment", type=Path, help="description of arm, drives and faults, TOML")
    ethercat.add_argument("--interface", default=SEGMENT_END, help="where the first drive is (default: %(default)s)")
    ethercat.add_argument("--far-end", metavar="INTERFACE", help="where the last drive is, of a ring")
    ethercat.add_argument("--priority", type=int, default=0, metavar="N", help="of SCHED_FIFO, 1 to 99; 0: ordinary")
    ethercat.add_argument("--core", type=int, metavar="N", help="processor to stay on")
    ethercat.add_argument("--check", action="store_true", help="check the description, then exit")
    ethercat.set_defaults(run=run_ethercat)
    plc = what.add_parser("plc", help="a simulated TwinCAT PLC", description=HELP["plc"])
    plc.add_argument("plc", type=Path, help="description of arm, axes and faults, TOML")
    plc.add_argument("--address", default="127.0.0.2", help="IPv4 address to listen at (default: %(default)s)")
    plc.add_argument("--port", type=int, default=48898, metavar="N", help="TCP port (default: %(default)s); 0: any")
    plc.add_argument("--check", action="store_true", help="check the description, then exit")
    plc.set_defaults(run=run_plc)


def run_link(arguments: argparse.Namespace) -> int:
    """Create or remove the cable."""
    from sim_backend.ethercat.link import Link

    link = Link(*arguments.ends)
    (link.up if arguments.action == "up" else link.down)()
    printed_json(arguments, {"link": arguments.action, "ends": [link.master, link.segment]})
    return Exit.OK


def run_ethercat(arguments: argparse.Namespace) -> int:
    """Serve the segment."""
    from sim_backend.ethercat.build import build_segment
    from sim_backend.ethercat.server import Scheduling, Server
    from sim_backend.ethercat.settings import load_segment

    settings = load_segment(arguments.segment)
    if settings.ring != (arguments.far_end is not None):
        need = "needs --far-end" if settings.ring else "is not a ring (ring = true), and has no far end"
        raise CliError(f"{arguments.segment}: the segment {need}")
    simulated = build_segment(settings, time.monotonic_ns(), str(arguments.segment))
    facts = {"drives": len(settings.drive), "robot": simulated.model.name, "interface": arguments.interface}
    if arguments.check:
        print_json(facts | {"ok": True})
        return Exit.OK
    names = (arguments.interface,) if arguments.far_end is None else (arguments.interface, arguments.far_end)
    with closing(Server(simulated.segment, names)) as server:
        scheduling = Scheduling(arguments.priority, arguments.core)
        server.run(scheduling, ready=lambda: print_json(facts | {"event": "ready"}), turn=simulated.turn)
    segment = simulated.segment
    sys.stderr.write(
        f"{server.frames} frames, {segment.steps} steps of the arm, {segment.skipped} left out because the process was "
        "late\n"
    )
    return Exit.OK


def run_plc(arguments: argparse.Namespace) -> int:
    """Serve the PLC."""
    from sim_backend.plc.build import build_plc
    from sim_backend.plc.server import Server
    from sim_backend.plc.settings import load_plc

    settings = load_plc(arguments.plc)
    simulated = build_plc(settings, time.monotonic_ns(), origin=str(arguments.plc))
    facts: dict[str, Any] = {"axes": len(settings.axis), "robot": simulated.model.name, "net_id": settings.net_id}
    if arguments.check:
        print_json(facts | {"ok": True})
        return Exit.OK
    with closing(Server(simulated, arguments.address, arguments.port)) as server:
        facts |= {"address": arguments.address, "port": server.port}
        server.run(ready=lambda: print_json(facts | {"event": "ready"}))
    sys.stderr.write(f"{simulated.next_cycle} cycles, at most {server.latest_ns * 1e-6:.1f} ms late\n")
    return Exit.OK
