"""Server of a segment at a network interface: raw sockets and the clock.

The loop waits for a frame or for the next thing due.  The arrival time of a frame is that of the kernel, so that a late
process does not delay the simulated hardware.  A socket receives all frames of the EtherCAT type that arrive at its
interface, and not those that it sends.
"""

import errno
import fcntl
import gc
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sim_backend.errors import SimulationError
from sim_backend.ethercat._segment import Segment
from sim_backend.ethercat.wire import ETHERTYPE
from sim_backend.signals import stop_on_signals

_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_MR_PROMISC, _PACKET_IGNORE_OUTGOING = 263, 1, 1, 23
_ARPHRD_ETHER = 1
_SO_TIMESTAMPNS = 35
_STAMP = struct.Struct("qq")  # seconds and nanoseconds
_STAMP_SPACE = socket.CMSG_SPACE(_STAMP.size)
_SIOCGIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8913, 0x1, 0x40
#: Longest sleep, within which a stop or a fault set from outside takes effect [s].
_MAX_WAIT_S = 0.1
#: Shortest sleep; below, the loop polls [ns].
_MIN_WAIT_NS = 20_000
#: Longest comparison of the clocks that is used; a longer one was preempted [ns].
_MAX_COMPARISON_NS = 20_000


class ServerError(SimulationError, OSError):
    """An interface cannot be used; the message has reason and remedy."""


@dataclass(frozen=True)
class Scheduling:
    """Scheduling of the process: priority of SCHED_FIFO (1 to 99; 0: as it is), and processor core to stay on."""

    priority: int = 0
    core: int | None = None


def open_interface(name: str) -> socket.socket:
    """Return a raw socket for the EtherCAT frames of an interface.

    Raises `ServerError` if it does not exist, is down, is no Ethernet, or raw sockets are not permitted.
    """
    _check_interface(name)
    try:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    except PermissionError as error:
        raise ServerError(
            f"no permission for raw sockets on {name}: run as root, or give the interpreter cap_net_raw with setcap"
        ) from error
    try:
        raw.setblocking(False)
        raw.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        raw.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        raw.bind((name, ETHERTYPE))
        member = struct.pack("iHH8s", socket.if_nametoindex(name), _PACKET_MR_PROMISC, 0, b"")
        raw.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, member)
        kind = raw.getsockname()[3]
    except OSError as error:
        raw.close()
        raise ServerError(f"interface {name} cannot be used: {os.strerror(error.errno or 0)}") from error
    if kind != _ARPHRD_ETHER:
        raw.close()
        raise ServerError(f"interface {name} is not Ethernet: take a network card or one end of a virtual pair")
    return raw


def _compare_clocks() -> tuple[int, int, int]:
    """Return duration, CLOCK_MONOTONIC less CLOCK_REALTIME in its middle, CLOCK_MONOTONIC at its end [ns]."""
    before_ns = time.monotonic_ns()
    real_ns = time.time_ns()
    after_ns = time.monotonic_ns()
    return after_ns - before_ns, (before_ns + after_ns) // 2 - real_ns, after_ns


def _arrival_ns(stamps: list[tuple[int, int, bytes]], offset_ns: int) -> int:
    """Return CLOCK_MONOTONIC of a frame's kernel time stamp [ns]; now without one."""
    now_ns = time.monotonic_ns()
    for level, kind, data in stamps:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) == _STAMP.size:
            seconds, nanoseconds = _STAMP.unpack(data)
            return min(int(seconds) * 1_000_000_000 + int(nanoseconds) + offset_ns, now_ns)
    return now_ns


def _check_interface(name: str) -> None:
    names = sorted(each for _, each in socket.if_nameindex())
    if name not in names:
        raise ServerError(f"there is no interface {name!r}; there are: {', '.join(names) or 'none'}")
    flags = _flags(name)
    if not flags & _IFF_UP:
        raise ServerError(f"interface {name} is down: switch it on with ip link set {name} up")
    if not flags & _IFF_RUNNING:
        raise ServerError(f"interface {name} has no link: plug the cable in, or switch the other end on")


def _flags(name: str) -> int:
    """Return the flags of an interface in the network namespace of this process; 0 if it has gone."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16sH14x", name.encode(), 0))
        except OSError:
            return 0
    return int(struct.unpack("16xH14x", answer)[0])


class Server:
    """A segment at one interface, or two for a ring: those of the first port, and of the far end.

    Counts `frames` received, `replies` sent, and those that the interface did not accept (`unsent`).  Raises
    `ServerError` as `open_interface`, or for the wrong number of interfaces.
    """

    def __init__(self, segment: Segment, interfaces: tuple[str, ...]) -> None:
        ports = 2 if segment.topology.ring else 1
        if len(interfaces) != ports or len(set(interfaces)) != ports:
            raise ServerError(
                f"a {'ring' if ports == 2 else 'line'} takes {ports} interface{'s' * (ports == 2)}, given were "
                f"{', '.join(interfaces) or 'none'}"
            )
        self.segment = segment
        self.frames = self.replies = self.unsent = 0
        self._stop = False
        self._offset_ns = min(_compare_clocks() for _ in range(16))[1]
        self._sockets: list[socket.socket] = []
        try:
            for name in interfaces:
                self._sockets.append(open_interface(name))
        except ServerError:
            self.close()
            raise
        self._names = interfaces
        segment.warm_up()

    def close(self) -> None:
        """Close the sockets."""
        for raw in self._sockets:
            raw.close()

    def stop(self) -> None:
        """Make `run` return; may be called from a signal handler."""
        self._stop = True

    def run(
        self, scheduling: Scheduling | None = None, ready: Callable[[], None] | None = None,
        turn: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        """Answer frames until `stop`, SIGTERM or SIGINT.

        Calls `ready` when the server is ready, and `turn` with CLOCK_MONOTONIC [ns] after each turn of the loop.
        Raises `ServerError` if the scheduling is not permitted, or an interface has disappeared.
        """
        self._stop = False
        with stop_on_signals(self.stop), _scheduled(scheduling or Scheduling()):
            self.segment.begin(time.monotonic_ns())
            due_ns = self.serve()
            if ready is not None:
                ready()
            while not self._stop:
                self._wait(due_ns)
                due_ns = self.serve()
                if turn is not None:
                    turn(time.monotonic_ns())

    def serve(self) -> int:
        """Do what is due and answer received frames; return the time of the next thing due [ns]."""
        segment = self.segment
        now_ns = self._look()
        for port, raw in enumerate(self._sockets):
            arrived_ns = 0
            while arrived_ns < now_ns:  # frames before what is due now, also in a flood
                try:
                    frame, stamps, _, _ = raw.recvmsg(2048, _STAMP_SPACE)
                except BlockingIOError:
                    break
                except OSError as error:
                    self._lost(port, error)
                    break
                self.frames += 1
                arrived_ns = _arrival_ns(stamps, self._offset_ns)
                for answer in segment.exchange(frame, port, arrived_ns):
                    self._send(*answer)
        for answer in segment.released(now_ns):
            self._send(*answer)
        return segment.tick(now_ns)

    def _look(self) -> int:
        """Return CLOCK_MONOTONIC [ns], and update its offset to the clock of the kernel's time stamps."""
        gap_ns, offset_ns, now_ns = _compare_clocks()
        if gap_ns <= _MAX_COMPARISON_NS:
            self._offset_ns = offset_ns
        return now_ns

    def _wait(self, due_ns: int) -> None:
        wait_ns = due_ns - time.monotonic_ns()
        if wait_ns < _MIN_WAIT_NS:
            return
        # Not poll, whose time-outs are whole milliseconds.
        select.select(self._sockets, (), (), min(wait_ns * 1e-9, _MAX_WAIT_S))

    def _send(self, port: int, frame: bytes) -> None:
        try:
            self._sockets[port].send(frame)
        except OSError as error:
            self.unsent += 1
            if error.errno not in (errno.ENOBUFS, errno.EAGAIN):
                self._lost(port, error)
        else:
            self.replies += 1

    def _lost(self, port: int, error: OSError) -> None:
        """Raise `ServerError`, unless the link is only down, as with a pulled cable."""
        if error.errno == errno.ENETDOWN and self._names[port] in {name for _, name in socket.if_nameindex()}:
            return
        raise ServerError(f"interface {self._names[port]} has gone: {os.strerror(error.errno or 0)}") from error


@contextmanager
def _scheduled(scheduling: Scheduling) -> Iterator[None]:
    """Apply the scheduling, and exclude existing objects from garbage collection."""
    policy, parameters, cores = os.sched_getscheduler(0), os.sched_getparam(0), os.sched_getaffinity(0)
    try:
        if scheduling.core is not None:
            os.sched_setaffinity(0, {scheduling.core})
        if scheduling.priority:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(scheduling.priority))
    except OSError as error:
        os.sched_setaffinity(0, cores)
        raise ServerError(
            f"core {scheduling.core}, SCHED_FIFO priority {scheduling.priority}: {os.strerror(error.errno or 0)}; "
            f"cores are {sorted(cores)}, priorities 1 to 99, and a priority needs root or CAP_SYS_NICE"
        ) from error
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        os.sched_setscheduler(0, policy, parameters)
        os.sched_setaffinity(0, cores)
