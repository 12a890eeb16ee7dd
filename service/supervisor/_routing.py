"""Requests of clients and processes on their way through the supervisor to who answers them, and the replies back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import zmq

from service.config.daemon import DaemonConfig
from service.protocol.control import (
    STOPPING,
    UNLIMITED,
    VERBS,
    ControlError,
    Refusal,
    Request,
    check_request,
    encode_error,
    encode_result,
)
from service.protocol.messages import MAX_REPLY, WireError, pack_map
from service.protocol.worker_messages import Answer, Ask, Reply
from service.security.http_policy import check_http, check_http_job
from service.supervisor._worker_handle import WorkerHandle

#: Requests that wait in a lane; their senders may all be answered within a turn or two.
MAX_IN_LANE = 1000

#: Process and verb of urgent requests, and whether a heartbeat has the permit that was granted last.
Lane: TypeAlias = tuple[bytes, str, bool]


@dataclass
class Pending:
    """A request that a process has not answered yet."""

    request: Request
    process: WorkerHandle
    deadline_ns: int
    route: list[bytes]  # of a client: identity, and the empty part of a REQ socket; empty: no reply is sent
    requester: bytes = b""  # identity of the process of this daemon that sent the request, if one did
    lane: Lane | None = None  # of an urgent request, of which one is under way at a time
    joined: list[Pending] = field(default_factory=list)  # answered with this one
    next: list[Pending] = field(default_factory=list)  # came meanwhile: sent together after it


class Routing:
    """Forwards requests to processes over the socket `private`, and answers back by `reply` along a client's route.

    `daemon` says what may be asked for by HTTP. What stops an arm, and the heartbeats of whoever has its permit, take
    the socket `urgent` to its acquisition, which reads it in every cycle. One of each is under way at a time, and those
    that come meanwhile are sent as one after it: nothing fills that way.
    """

    def __init__(
        self, processes: Sequence[WorkerHandle], private: zmq.Socket[bytes],
        reply: Callable[[list[bytes], bytes], None], arms: tuple[str, ...], daemon: DaemonConfig,
        urgent: zmq.Socket[bytes] | None = None,
    ) -> None:  # fmt: skip
        self._processes, self._private, self._reply, self._arms = processes, private, reply, arms
        self._daemon = daemon
        self._pending: dict[int, Pending] = {}
        self._standing: dict[tuple[str, str | None, str], Request] = {}  # repeated to a restarted process
        self._next_id = 1
        self._urgent = private if urgent is None else urgent
        self._lanes: dict[Lane, Pending] = {}
        self._permits: dict[str | None, str] = {}  # by arm, granted last
        #: Called with each request to stop before it is sent, wherever it comes from.
        self.on_stop: Callable[[Request], None] = lambda _: None

    def forward(self, request: Request, role: str, *, route: list[bytes] | None = None, requester: bytes = b"") -> None:
        """Send a request to the process of `role`; raises `ControlError` if there is none, or it is not ready."""
        if role == "supervisor":  # which answers clients itself
            raise ControlError("denied", f"{request.verb}: is for clients alone")
        if request.verb in STOPPING:
            self.on_stop(request)
        arm = None if role == "jobs" else request.args["arm"]
        process = next((p for p in self._processes if p.role == role and p.arm == arm), None)
        if process is None:
            raise ControlError(
                "unavailable", f"arm {arm} has no {role}: add the table [arm.{role}] to its configuration"
            )
        if process.state != "ready":
            raise ControlError("unavailable", f"{process.name} is {process.state}: {process.last_error or 'not ready'}")
        deadline_ns = time.monotonic_ns() + int(VERBS[request.verb].within_s * 1e9)
        pending = Pending(request, process, deadline_ns, route or [], requester)
        if request.verb not in UNLIMITED:
            self._send(pending)
            return
        mine = request.verb in STOPPING or request.args.get("permit") == self._permits.get(arm, "")
        pending.lane = process.identity, request.verb, mine
        under_way = self._lanes.get(pending.lane)
        if under_way is None:
            self._send(pending)
        elif not mine or len(under_way.next) >= MAX_IN_LANE:
            raise ControlError("too_many", f"{request.verb}: another one is under way: await its answer first")
        else:
            under_way.next.append(pending)

    def _send(self, pending: Pending) -> None:
        """Send a request to its process; raises `ControlError` where it cannot be sent."""
        id = self._next_id
        self._next_id += 1
        request, process, lane = pending.request, pending.process, pending.lane
        data = pack_map(Request(id, request.verb, request.args), MAX_REPLY)
        for socket in (self._urgent, self._private) if lane is not None and lane[2] else (self._private,):
            with contextlib.suppress(zmq.ZMQError):  # of a process that has just come the second may not be connected
                socket.send_multipart([process.identity, data], zmq.NOBLOCK)
                break
        else:
            raise ControlError("too_many", f"{request.verb}: {process.name} does not read its requests at the moment")
        self._pending[id] = pending
        if lane is not None:
            self._lanes[lane] = pending

    def _pop(self, id: int) -> Pending | None:
        pending = self._pending.pop(id, None)
        if pending is not None and pending.lane is not None:
            self._lanes.pop(pending.lane, None)
        return pending

    def on_ask(self, process: WorkerHandle, ask: Ask) -> None:
        """Pass on the request of a process to another; those of the web process are checked like any client's."""
        try:
            if process.role == "web":
                check_http(ask.verb, ask.role, self._daemon)
                if ask.verb == "submit":
                    check_http_job(ask.args)
            request = check_request(ask, self._arms)
            self.forward(request, VERBS[request.verb].target, requester=process.identity)
        except ControlError as error:
            pending = Pending(ask, process, 0, [], process.identity)
            self._answer(pending, error=Refusal(error.type, error.message))

    def on_reply(self, process: WorkerHandle, message: Reply) -> None:
        """Pass on a reply."""
        pending = self._pop(message.id)
        if pending is None:  # it was given up
            return
        verb, result = pending.request.verb, message.result
        if result is not None and VERBS[verb].standing:
            self._standing[process.role, process.arm, verb] = pending.request
        elif result is not None and verb == "arm":
            self._permits[process.arm] = str(result.get("permit", ""))
        for one in (pending, *pending.joined):
            self._answer(one, result=result, error=message.error)
        self._send_next(pending)

    def _send_next(self, pending: Pending) -> None:
        if not pending.next:
            return
        *others, last = pending.next
        last.joined = others
        try:
            self._send(last)
        except ControlError as failed:
            for one in pending.next:
                self._answer(one, error=Refusal(failed.type, failed.message))

    def repeat(self, process: WorkerHandle) -> None:
        """Send the standing requests to a process that has been restarted."""
        for (role, arm, _), request in self._standing.items():
            if (role, arm) == (process.role, process.arm):
                with contextlib.suppress(ControlError):  # it has only just come, and its queue is empty
                    self.forward(request, role)

    def on_exit(self, process: WorkerHandle) -> None:
        """Refuse the pending requests of a process that has ended."""
        self._give_up(lambda p: p.process is process, "unavailable", f"{process.name} ended before it answered")

    def expire(self) -> None:
        """Refuse the requests that were not answered in time."""
        now_ns = time.monotonic_ns()
        for id, pending in list(self._pending.items()):
            if now_ns > pending.deadline_ns:
                later, pending.next = pending.next, []  # they are not sent yet, and may have to undo what came between
                self._give_up_one(id, "timeout", f"no answer within {VERBS[pending.request.verb].within_s:g} s")
                self._send_next(replace(pending, next=later))

    def stop(self) -> None:
        """Refuse all pending requests: the daemon stops."""
        self._give_up(lambda _: True, "unavailable", "the daemon is stopping")

    def _give_up(self, which: Callable[[Pending], bool], type: str, message: str) -> None:
        for id, pending in list(self._pending.items()):
            if which(pending):
                self._give_up_one(id, type, message)

    def _give_up_one(self, id: int, type: str, message: str) -> None:
        pending = self._pop(id)
        assert pending is not None
        name = "" if pending.process.name in message else f"{pending.process.name}: "
        for one in (pending, *pending.joined, *pending.next):
            self._answer(one, error=Refusal(type, name + message))

    def _answer(self, pending: Pending, *, result: dict[str, Any] | None = None, error: Refusal | None = None) -> None:
        id = pending.request.id
        if pending.requester:
            try:
                data = pack_map(Answer(id, result, error), MAX_REPLY)
            except WireError as problem:
                data = pack_map(Answer(id, error=Refusal("failed", str(problem))), MAX_REPLY)
            with contextlib.suppress(zmq.ZMQError):  # the requester may have ended meanwhile
                self._private.send_multipart([pending.requester, data], zmq.NOBLOCK)
        elif pending.route:
            try:
                payload = encode_error(id, error.type, error.message) if error else encode_result(id, result or {})
            except WireError as problem:
                payload = encode_error(id, "failed", str(problem))
            self._reply(pending.route, payload)
