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
    Request,
    check_request,
    encode_error,
    encode_result,
)
from service.protocol.messages import MAX_REPLY, WireError, pack_map
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
        data = pack_map({"id": id, "verb": request.verb, "args": request.args}, MAX_REPLY)
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

    def on_ask(self, process: WorkerHandle, message: dict[str, Any]) -> None:
        """Pass on the request of a process to another; those of the web process are checked like any client's."""
        request = Request(message["id"], message["verb"], message["args"])
        try:
            if process.role == "web":
                check_http(request.verb, message["role"], self._daemon)
                if request.verb == "submit":
                    check_http_job(request.args)
            request = check_request(request, self._arms)
            self.forward(request, VERBS[request.verb].target, requester=process.identity)
        except ControlError as error:
            self._answer(Pending(request, process, 0, [], process.identity), error=error)

    def on_reply(self, process: WorkerHandle, message: dict[str, Any]) -> None:
        """Pass on a reply."""
        pending = self._pop(message["id"])
        if pending is None:  # it was given up
            return
        verb, result = pending.request.verb, message.get("result")
        error: ControlError | None = None
        if "error" in message:
            error = ControlError(message["error"]["type"], message["error"]["message"])
        elif VERBS[verb].standing:
            self._standing[process.role, process.arm, verb] = pending.request
        elif verb == "arm":
            self._permits[process.arm] = str(message["result"].get("permit", ""))
        for one in (pending, *pending.joined):
            self._answer(one, result=result, error=error)
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
                self._answer(one, error=failed)

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
            self._answer(one, error=ControlError(type, name + message))

    def _answer(
        self, pending: Pending, *, result: dict[str, Any] | None = None, error: ControlError | None = None
    ) -> None:
        id = pending.request.id
        if pending.requester:
            answer = {"result": result} if error is None else {"error": {"type": error.type, "message": error.message}}
            try:
                data = pack_map({"type": "answer", "id": id, **answer}, MAX_REPLY)
            except WireError as problem:
                failed = {"type": "failed", "message": str(problem)}
                data = pack_map({"type": "answer", "id": id, "error": failed}, MAX_REPLY)
            with contextlib.suppress(zmq.ZMQError):  # the requester may have ended meanwhile
                self._private.send_multipart([pending.requester, data], zmq.NOBLOCK)
        elif pending.route:
            try:
                payload = encode_error(id, error.type, error.message) if error else encode_result(id, result or {})
            except WireError as problem:
                payload = encode_error(id, "failed", str(problem))
            self._reply(pending.route, payload)
