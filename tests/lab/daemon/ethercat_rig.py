"""A small arm on EtherCAT for tests of the daemon: network name space, simulated drives, published messages."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drivers.frame import JointFrame
from service.client import BodyMessage, ClientTimeoutError, FrameMessage, Subscriber
from sim_backend.ethercat.link import MASTER_END, Link, enable_loopback
from tests.lab.closing import Closing
from tests.lab.ethercat.configs import SERVO
from tests.lab.ethercat.namespace import ROOT, ToldProcess, new_network, wait_until

ARM = "arm"
N = 3
JOINTS = [f"joint_{k + 1}" for k in range(N)]
GEAR = 101.0
SERIALS = [101, 102, 103]
DEADLINE_S = 30.0


@contextmanager
def network() -> Iterator[Link]:
    """Enter a new network name space with a virtual cable; processes started meanwhile are in it, too."""
    with new_network():
        enable_loopback()
        link = Link()
        link.up()
        yield link


def write_robot(folder: Path) -> Path:
    """Write the robot file: the first joints of the shipped arm of seven."""
    pieces = (ROOT / "configs" / "robots" / "arm7.toml").read_text(encoding="utf-8").split("[[joint]]")
    text = "[[joint]]".join(pieces[: N + 1]).replace('name = "arm7"', 'name = "arm3"')
    path = folder / "arm3.toml"
    path.write_text(text, encoding="utf-8")
    return path


def write_segment(folder: Path, faults: str = "", bridge_cycles: int = 8) -> Path:
    """Write the description of the drives, with `[[fault]]` entries."""
    write_robot(folder)
    ratings = (1.2, 1.8, 0.9)
    drives = [
        f'[[drive]]\njoint = "{joint}"\ngear_ratio = {GEAR}\nrated_torque_nm = {rating}\nserial = {serial}\n'
        f"clock_ppm = {10.0 * k - 10.0}\n"
        for k, (joint, rating, serial) in enumerate(zip(JOINTS, ratings, SERIALS, strict=True))
    ]
    path = folder / "segment.toml"
    head = ['robot = "arm3.toml"', "torque_noise = 0.002", f"bridge_cycles = {bridge_cycles}"]
    path.write_text("\n".join([*head, *drives, faults]), encoding="utf-8")
    return path


def device(**changes: Any) -> dict[str, Any]:
    """Table of the drives' type, which send no current."""
    sent = [entry for entry in SERVO["tx"]["1A00"] if "current" not in entry]
    return SERVO | {"tx": {"1A00": sent}} | changes


def drives(serials: list[int] = SERIALS) -> list[dict[str, Any]]:
    """Tables of the drives, identified by their serial numbers."""
    return [
        {"joint": joint, "device": "servo", "gear_ratio": GEAR, "serial": serial}
        for joint, serial in zip(JOINTS, serials, strict=True)
    ]


def arm(folder: Path, motion: dict[str, Any] | None = None, **driver: Any) -> dict[str, Any]:
    """Table of the arm: enabled at the start and moving, with changes to its driver."""
    source = {
        "kind": "ethercat", "interface": MASTER_END, "enable": True, "drive": drives(), "device": {"servo": device()},
    } | driver  # fmt: skip
    return {
        "name": ARM, "robot": str(folder / "arm3.toml"), "driver": source,
        "motion": {"seed": 1, "candidates": 1, "amplitude": 0.6, "approach": 0.5} | (motion or {}),
        "realtime": {"priority": 80}, "state": {"resume": False},
    }  # fmt: skip


class Drives(ToldProcess):
    """The drives' process; `tell(name, ...)` calls a method of `ethercat_segment.Bench`."""

    def __init__(self, segment: Path) -> None:
        super().__init__(sys.executable, "-m", "tests.lab.daemon.ethercat_segment", str(segment))

    def fault(self, kind: str, **keys: Any) -> None:
        """Apply one entry of a fault script now."""
        self.tell("fault", {"kind": kind, **keys})

    def until(self, done: Callable[[list[list[Any]]], bool]) -> list[list[Any]]:
        """Poll the drives' states until `done` returns true for them."""
        deadline = time.monotonic() + DEADLINE_S
        while not done(states := self.tell("states")):
            assert time.monotonic() < deadline, states
            time.sleep(0.01)
        return list(states)

    def await_motion(self) -> None:
        """Wait until a joint moves."""
        wait_until(lambda: self.tell("speed") >= 1e-3)

    def safe(self) -> None:
        """Wait until no slave is beyond PREOP and no drive has torque."""
        self.until(lambda states: all(al in (1, 2) and drive != "ENABLED" for al, _, drive in states))


class Watcher(Closing):
    """Collects all messages of the arm's acquisition, in order.

    `endpoint` is that of the daemon's frames, and `runtime` the directory of its private sockets.  Each status has, as
    "after_seq", the number of the frame before it.
    """

    def __init__(self, endpoint: str, runtime: Path) -> None:
        self.runtime = runtime
        self.frames: list[JointFrame] = []
        self.statuses: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._done = False
        self._stream = Subscriber(endpoint, [f"{ARM}/frame", f"{ARM}/status"])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._done:
            try:
                message = self._stream.receive(0.2)
            except ClientTimeoutError:
                continue
            with self._news:
                if isinstance(message, FrameMessage):
                    self.frames.append(message.frame)
                elif isinstance(message, BodyMessage):
                    after = self.frames[-1].seq if self.frames else -1
                    self.statuses.append(message.body | {"after_seq": after})
                    self._news.notify_all()

    def status(self, done: Callable[[dict[str, Any]], bool], newer_than: int = -1) -> dict[str, Any]:
        """Return the first status that `done` accepts, beyond the first `newer_than`; by default from the latest on."""
        deadline = time.monotonic() + DEADLINE_S
        place = max(len(self.statuses) - 1, 0) if newer_than < 0 else newer_than
        while True:
            said = self.statuses[place:]
            for body in said:
                if done(body):
                    return body
            assert time.monotonic() < deadline, said[-1:]
            place += len(said)
            self.ask()

    def ask(self) -> dict[str, Any]:
        """Return a new status: the acquisition publishes one for each new subscriber."""
        place = len(self.statuses)
        (socket,) = self.runtime.glob(f"**/{ARM}.frames")
        with Subscriber(f"ipc://{socket}", [f"{ARM}/status"]) as newcomer:
            newcomer.receive(DEADLINE_S)
        with self._news:
            assert self._news.wait_for(lambda: len(self.statuses) > place, DEADLINE_S)
        return self.statuses[-1]

    def close(self) -> None:
        """Stop listening."""
        self._done = True
        self._thread.join()
        self._stream.close()


def whole(frame: JointFrame) -> bool:
    """Whether all joints of a frame are valid."""
    return frame.valid is None or bool(frame.valid.all())


def operational(body: dict[str, Any]) -> bool:
    """Whether a status reports a bus in operation with all its slaves."""
    source = body["source"]
    return source["state"] == "operational" and all(drive["al_state"] == "OP" for drive in source["drives"])


def following(body: dict[str, Any]) -> bool:
    """Whether a status reports drives that follow the motion."""
    return operational(body) and body["source"]["enabled"] and body["motion"]["state"] == "running"
