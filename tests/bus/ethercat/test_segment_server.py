"""A segment at a virtual cable; what cannot be served is refused in one sentence.

Each run has a network namespace of its own, which goes with its processes.
"""

import signal

import pytest

from tests.lab.ethercat.namespace import in_namespace

CABLE = """
import time
from sim_backend.ethercat import server as module
from sim_backend.ethercat.link import Link, _ip
from tests.lab.ethercat.namespace import die_with_parent
die_with_parent()
link = Link()
link.up()

def await_link(name, up):
    while bool(module._flags(name) & module._IFF_RUNNING) != up:  # the kernel takes a moment
        time.sleep(0.01)

await_link(link.segment, True)
"""
SERVE = """
import os, signal, time
from sim_backend.errors import SimulationError
from sim_backend.ethercat._segment import Segment
from sim_backend.ethercat.server import Scheduling, Server
from tests.lab.ethercat.simple_device import Echo

def serve(*names, ring=False, scheduling=None, ready=None):
    try:
        server = Server(Segment([Echo], None, ring=ring, now_ns=time.monotonic_ns()), names)
        server.run(scheduling, ready)
    except SimulationError as error:
        print(error)
    else:
        print("stopped", signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""

RETURN = """
import select
from sim_backend.ethercat.server import open_interface
from sim_backend.ethercat.wire import BRD
from tests.lab.ethercat.frames import build_frame, physical
server = Server(Segment([Echo], None, now_ns=time.monotonic_ns()), ("thetad1",))
server.serve()
_ip('link', 'set', 'thetad1', 'down')
server.serve()
print("link down, nothing answered" if server.replies == 0 else server.replies)
_ip('link', 'set', 'thetad1', 'up')
await_link("thetad0", True)
master = open_interface("thetad0")
master.send(build_frame([physical(BRD, 0, 0, bytes(1))]))
while not server.replies:
    server.serve()
print("answered again" if select.select([master], [], [], 10.0)[0] else "silent")
"""

#: A clock at every look at which a frame comes, and then a step is due; or whose two kinds are far from each other.
CLOCKS = """
import types
from sim_backend.ethercat.server import open_interface
from sim_backend.ethercat.wire import APWR
from tests.lab.ethercat.frames import build_frame, physical

class Machine:
    steps = ()
    def connect(self, buses): pass
    def cycle(self, period_s): self.steps += ((segment.grid.due_ns, int(segment.memory[0, 0x1100])),)

segment = Segment([Echo], machine := Machine(), now_ns=time.monotonic_ns())
server = Server(segment, ("thetad1",))
master = open_interface("thetad0")
segment.begin(time.monotonic_ns())
sent, real, monotonic = [], time.time_ns, time.monotonic_ns

def send(register, data):
    before_ns = monotonic()
    master.send(build_frame([physical(APWR, 0, register, data)]))
    sent.append((before_ns, monotonic()))

def look():
    if len(sent) < 200:
        send(0x1100, bytes([len(sent) + 1]))
        time.sleep(0.0012)
    return monotonic()

def late():
    time.sleep(0.005)
    return real()
"""
RACE = """
module.time = types.SimpleNamespace(monotonic_ns=look, time_ns=real)
while len(sent) < 200 or segment.memory[0, 0x1100] < 200:
    server.serve()
early = [(due, count) for due, count in machine.steps for k in [sum(end < due for _, end in sent)] if count < k]
print(len(machine.steps) > 100, early)
"""
COMPARED = """
module.time = types.SimpleNamespace(monotonic_ns=monotonic, time_ns=late)
devices = segment.controllers
for _ in range(20):
    send(0x0120, b"\\x02\\x00")
    time.sleep(0.01)
    server.serve()
arrived = [at for kind, at in devices[0].events if kind == 7]
wrong = [k for k, ((a, b), at) in enumerate(zip(sent, arrived, strict=True)) if not a - 50_000 <= at <= b + 50_000]
print(len(arrived), wrong)
"""


@pytest.mark.parametrize(
    ("prepare", "call", "message"),
    [
        ("", "serve('eth9')", "there is no interface 'eth9'; there are: lo, thetad0, thetad1"),
        (
            "_ip('link', 'set', link.master, 'down'); await_link('thetad1', False)",
            "serve('thetad1')",
            "interface thetad1 has no link: plug the",
        ),
        ("_ip('link', 'set', 'lo', 'up')", "serve('lo')", "interface lo is not Ethernet: take a network card"),
        ("os.setuid(65534)", "serve('thetad1')", "no permission for raw sockets on thetad1: run as root"),
        ("", "serve('thetad1', ring=True)", "a ring takes 2 interfaces, given were thetad1"),
        ("", "serve('thetad1', scheduling=Scheduling(50, 4096))", "core 4096, SCHED_FIFO priority 50: Invalid arg"),
        (
            "",
            "serve('thetad1', ready=lambda: _ip('link', 'delete', link.segment))",
            "interface thetad1 has gone",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_said_in_one_sentence(prepare: str, call: str, message: str) -> None:
    answer = in_namespace("-c", CABLE + SERVE + f"{prepare}\n{call}\n")
    assert message in answer
    assert len(answer.splitlines()) == 1


def test_a_cable_that_comes_back_is_served_again() -> None:
    assert in_namespace("-c", CABLE + SERVE + RETURN) == "link down, nothing answered\nanswered again"


def test_no_step_is_taken_before_a_frame_that_came_before_it() -> None:
    assert in_namespace("-c", CABLE + SERVE + CLOCKS + RACE) == "True []"


def test_a_comparison_of_clocks_that_was_interrupted_does_not_count() -> None:
    count, wrong = in_namespace("-c", CABLE + SERVE + CLOCKS + COMPARED).split(" ", 1)
    assert (int(count), wrong) == (20, "[]")


def test_a_signal_stops_the_loop_and_gets_its_handler_back() -> None:
    ready = f"lambda: os.kill(os.getpid(), {int(signal.SIGTERM)})"
    assert in_namespace("-c", CABLE + SERVE + f"serve('thetad1', ready={ready})\n") == "stopped True"
