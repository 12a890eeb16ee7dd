"""What the processes of a daemon say to the supervisor, where it cannot be read or sent."""

import contextlib
import json
import math
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgpack
import pytest
import structlog
import zmq

from service.config.daemon import DaemonConfig
from service.protocol import worker_messages
from service.protocol.control import VERBS, ControlError, Reply, Request, decode_reply, encode_request, encode_result
from service.protocol.messages import MAX_REPLY, WireError, pack_map, unpack_map
from service.protocol.worker_messages import MAX_EVENT, MAX_INFO, decode_worker_message
from service.supervisor import directories
from service.supervisor._events import MAX_EVENT_KINDS, OTHER_EVENTS
from service.supervisor._routing import Routing
from service.supervisor._worker_handle import WorkerHandle
from service.supervisor.supervisor import Supervisor
from service.worker.worker import STACK_DUMP_SIGNAL, Handler, Worker
from tests.lab.daemon.daemons import config

ARM = {"name": "arm", "robot": "emps", "driver": {"kind": "sim"}}


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    """A supervisor that has started nothing."""
    one = Supervisor(config(tmp_path, ARM, runtime_dir=str(tmp_path / "r"), http=True, http_port=0))
    yield one
    one._cleanup.close()


@contextlib.contextmanager
def speaking(supervisor: Supervisor, name: str) -> Iterator[zmq.Socket[bytes]]:
    """A process's end of the private socket."""
    managed = entry(supervisor, name)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        managed.process = process
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.IDENTITY, managed.identity)
            socket.setsockopt(zmq.RCVTIMEO, 10_000)
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(supervisor.runtime.supervisor)
            yield socket
        managed.process = None
        process.kill()


@pytest.fixture
def jobs(supervisor: Supervisor) -> Iterator[zmq.Socket[bytes]]:
    """The jobs process's end of the private socket."""
    with speaking(supervisor, "jobs") as socket:
        yield socket


def receive(supervisor: Supervisor) -> None:
    assert supervisor._private.poll(10_000)
    supervisor._receive_private()


def entry(supervisor: Supervisor, name: str) -> WorkerHandle:
    """A process of the supervisor, with its role or its whole name."""
    return next(process for process in supervisor.processes if name in (process.role, process.name))


def nested(depth: int) -> object:
    return {"x": nested(depth - 1)} if depth else 0


def test_a_process_refuses_to_send_unreadable_replies(tmp_path: Path) -> None:
    """A reply too deep or too large becomes a refusal, and a refusal has a bounded length."""
    (tmp_path / "config.json").write_text(config(tmp_path, ARM).model_dump_json(), encoding="utf-8")
    worker = Worker("jobs", None, tmp_path)
    try:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as other:
            other.bind(worker.runtime.supervisor)
            worker.reply(1, {"robot": "x" * 200_000})
            worker.reply(2, {"deep": nested(20)})
            worker.reply(3, {"large": "x" * MAX_REPLY})
            worker.reply(4, {"alien": object()})
            worker.refuse(5, ControlError("failed", "\0" * 100_000))
            said = {}
            for _ in range(5):
                assert other.poll(10_000)
                message = unpack_map(other.recv_multipart()[1], MAX_REPLY, text=MAX_REPLY)
                said[message["id"]] = message
    finally:
        worker.close()
    assert len(said[1]["result"]["robot"]) == 200_000
    for id, word in ((2, "nested"), (3, "limit"), (4, "encode")):
        assert said[id]["error"]["type"] == "failed"
        assert word in said[id]["error"]["message"]
    assert len(json.dumps(said[5])) < 30_000


# ---------------------------------------------------------------- messages of another shape

GOOD: tuple[dict[str, Any], ...] = (
    {"type": "beat", "info": {"state": "running", "frames": 3}},
    {"type": "ready", "info": {"epoch": 1, "frames_port": 9870, "estimates_port": 9871, "http_port": 9874}},
    {"type": "promise", "within_s": 5, "otherwise": "it hung"},
    {"type": "event", "event": "drift", "text": "it drifts", "data": {"arm": "arm"}, "ids": {"frame": 7}},
    {"type": "ask", "id": 1, "verb": "jobs", "args": {}, "role": "read"}, {"type": "reply", "id": 1, "result": {}},
    {"type": "reply", "id": 1, "error": {"type": "failed", "message": "no"}},
    {"type": "crash", "message": "no", "again": False},
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "end_reason"),
    [
        (lambda said: said.update(type="x" * 1000), "type: .* 'xxx"), (lambda said: said.pop("type"), "field `type`"),
        (lambda said: said.update(type="beat", info=[1]), "info: Expected `object`, got `array`"),
        (lambda said: said.update(type="beat", info=nested(8)), "nested deeper than 7"),
        (lambda said: said.update(type="beat", info={"state": "x" * MAX_INFO}), "the limit is 262144"),
        (lambda said: said["info"].update(estimates_port=1 << 16), "estimates_port: Expected"),
        (lambda said: said.update(type="promise", otherwise="", within_s=math.nan), "within_s: Expected"),
        (lambda said: said.update(GOOD[3], event="a b"), "event: Expected"),
        (lambda said: said.update(GOOD[3], data={"arm": 5}), "data.arm"),
        (lambda said: said.update(GOOD[3], ids={"event": 1}), "ids: .* 'event'"),
        (lambda said: said.update(GOOD[3], text="x" * MAX_EVENT), "the limit is"),
        (lambda said: said.update(type="reply", id=1), "a result or an error"),
    ],
)  # fmt: skip
def test_a_message_of_another_shape_is_none(change: Callable[[dict[str, Any]], object], end_reason: str) -> None:
    said = {"type": "ready", "info": dict(GOOD[1]["info"])}
    assert decode_worker_message(pack_map(said), "gateway") == worker_messages.Ready(said["info"])
    change(said)
    with pytest.raises(WireError, match=end_reason) as refused:
        decode_worker_message(msgpack.packb(said), "gateway")
    assert len(str(refused.value)) < 300


def anything(rng: random.Random, depth: int = 3) -> Any:
    """Any value that msgpack can hold."""
    leaves = (
        None, True, 0, 1, -1, (1 << 64) - 1, -(1 << 63), 0.5, math.nan, math.inf, 1e300, "", "arm", "x" * 999, b"",
    )  # fmt: skip
    kind = rng.randrange(4 if depth else 2)
    if kind < 2:
        return rng.choice(leaves)
    if kind == 2:
        return [anything(rng, depth - 1) for _ in range(rng.randrange(3))]
    return {rng.choice(("arm", "state", "model", "event", "http_port", "x", 5)): anything(rng, depth - 1) for _ in "ab"}


def some_message(rng: random.Random) -> bytes:
    """A message with some of its fields changed, missing or added; or no message at all."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.randrange(40))
    said = dict(rng.choice(GOOD))
    if said["type"] == "ask":
        said["verb"] = rng.choice((*VERBS, "nonsense"))
    for _ in range(rng.randrange(3)):
        name = rng.choice((*said, "info", "error", "result", "ids"))
        if rng.random() < 0.3:
            said.pop(name, None)
        else:
            said[name] = anything(rng)
    return bytes(msgpack.packb(said))


@pytest.mark.parametrize("name", ["jobs", "gateway", "arm/acquisition"])
def test_the_supervisor_survives_any_message(supervisor: Supervisor, name: str) -> None:
    """It counts what is no message, says so once a minute, and answers for itself as before."""
    rng, refused = random.Random(name), 0
    managed = entry(supervisor, name)
    with speaking(supervisor, name) as socket, structlog.testing.capture_logs() as logs:
        for _ in range(40):
            lot = [some_message(rng) for _ in range(50)]
            for data in lot:
                socket.send(data)
                with contextlib.suppress(WireError):
                    decode_worker_message(data, managed.role)
                    refused -= 1
                refused += 1
            socket.send(pack_map({"type": "beat", "info": {"lot": rng.random()}}))
            before = managed.info.get("lot")
            while managed.info.get("lot") == before:
                receive(supervisor)
            supervisor._events.forward(supervisor._private, entry(supervisor, "jobs"))
            supervisor._send_status()
            supervisor._routing.expire()
            while socket.poll(0):
                socket.recv()
            assert decode_reply(encode_result(1, supervisor._status())).error is None
    assert managed.unreadable == refused > 500
    reported = [line for line in logs if line["event"] == "message_unreadable"]
    assert [line["name"] for line in reported] == [name]


def test_a_hang_is_one_of_this_run_and_who_has_spoken_while_the_supervisor_stood_does_not_hang(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for process in supervisor.processes:
        process.next_start_ns = sys.maxsize
    managed = entry(supervisor, "jobs")
    managed.count_unreadable(0, "it is odd")
    managed.end_reason, managed.killed, managed.info = "it was large", True, {"running": 1}
    managed.start(supervisor.runtime.directory, 1, 0, supervisor.config)
    sent: list[int] = []
    try:
        with monkeypatch.context() as patch:
            patch.setattr(managed, "send_signal", sent.append)
            patch.setattr(supervisor._pool, "_receive", lambda: managed.on_heartbeat(time.monotonic_ns()))
            managed.on_ready(1)
            supervisor._pool.keep_running(supervisor.config)
            assert (sent, managed.stack_requested_ns) == ([], 0)
            patch.setattr(supervisor._pool, "_receive", lambda: None)
            managed.on_ready(1)
            supervisor._pool.keep_running(supervisor.config)
            assert (sent, managed.end_reason, managed.info) == ([STACK_DUMP_SIGNAL], "", {})
            for odd in ("", "; its last message that could not be read: it is odder"):
                managed.stack_requested_ns, managed.ran_at_request_ns, managed.killed = 1, -1, False
                supervisor._pool.keep_running(supervisor.config)
                assert re.fullmatch(rf"silent for more than [0-9.]+ s \([a-z ]+\){odd}", managed.end_reason)
                managed.count_unreadable(0, "it is odder")
            assert sent == [STACK_DUMP_SIGNAL, signal.SIGKILL, signal.SIGKILL]
    finally:
        managed.send_signal(signal.SIGKILL)
        managed.on_exit(0)


def test_ever_new_kinds_of_events_are_counted_together(supervisor: Supervisor, jobs: zmq.Socket[bytes]) -> None:
    said = {"type": "event", "text": "it drifts", "data": {"arm": "arm", "model": "m"}, "ids": {"frame": 7}}
    with structlog.testing.capture_logs() as logs:
        for number in range(MAX_EVENT_KINDS + 50):
            jobs.send(pack_map({**said, "event": f"kind_{number}"}))
            receive(supervisor)
    told = {"event_kind": "kind_0", "text": "it drifts", "arm": "arm", "model": "m", "frame": 7}
    assert logs[0].items() >= told.items()
    counts = supervisor._status()["events"]
    assert len(counts) == MAX_EVENT_KINDS + 1
    assert (counts["kind_0"], counts[OTHER_EVENTS]) == (1, 50)


def test_ever_new_keys_do_not_make_the_status_too_large(supervisor: Supervisor, jobs: zmq.Socket[bytes]) -> None:
    """What a process says of itself is bounded altogether: what goes beyond is refused, and it counts as silent."""
    managed = entry(supervisor, "jobs")
    heard = []
    for key, value in (("a", "x" * 250_000), ("b", "x" * 250_000), ("a", "y")):
        jobs.send(pack_map({"type": "beat", "info": {key: value}}))
        receive(supervisor)
        heard.append(managed.heartbeat_ns)
    assert (managed.unreadable, managed.info) == (1, {"a": "y"})
    assert heard[0] == heard[1] < heard[2]


def test_requests_to_a_process_that_ends_are_refused_and_standing_ones_repeated_to_its_successor() -> None:
    private, replies = mock.Mock(), list[Reply]()
    recorder = WorkerHandle("recorder", "a", state="ready")
    routing = Routing([recorder], private, lambda _, data: replies.append(decode_reply(data)), ("a",), DaemonConfig())

    def forwarded() -> dict[str, Any]:
        return unpack_map(private.send_multipart.call_args.args[0][1])

    for id, action in enumerate(("start", "stop", "start")):
        routing.forward(Request(id, "record", {"arm": "a", "action": action}), "recorder", route=[b"client"])
        if id == 0:
            routing.on_reply(recorder, worker_messages.Reply(forwarded()["id"], {"recording": True}))
        elif id == 1:
            routing.on_exit(recorder)
        else:
            next(iter(routing._pending.values())).deadline_ns = 0
            routing.expire()
    assert replies[0].result == {"recording": True}
    assert [reply.error and reply.error.type for reply in replies] == [None, "unavailable", "timeout"]
    routing.forward(Request(3, "record", {"arm": "a", "action": "stop"}), "recorder")
    routing.repeat(recorder)
    assert forwarded()["args"] == {"arm": "a", "action": "start"}  # what was done last; nobody did the others
    routing.forward(Request(4, "snapshot", {"arm": "a"}), "recorder", route=[b"client"])
    routing.on_reply(recorder, worker_messages.Reply(forwarded()["id"], {"x": "x" * MAX_REPLY}))
    assert f"the limit is {MAX_REPLY}" in str(replies[-1].error)


def test_a_stop_that_waits_for_another_is_sent_where_that_has_no_answer() -> None:
    """What came between the two may have undone the first; wherever a stop comes from, it overtakes what waits."""
    private, stops = mock.Mock(), list[int]()
    acquisition = WorkerHandle("acquisition", "a", state="ready")
    routing = Routing([acquisition], private, lambda *_: None, ("a",), DaemonConfig())
    routing.on_stop = lambda request: stops.append(request.id)
    for id, verb in enumerate(("disable", "enable", "disable")):
        routing.forward(Request(id, verb, {"arm": "a"}), "acquisition")
    next(iter(routing._pending.values())).deadline_ns = 0
    routing.expire()
    sent = [unpack_map(call.args[0][1])["verb"] for call in private.send_multipart.call_args_list]
    assert (sent, stops) == (["disable", "enable", "disable"], [0, 2])


def overfill(supervisor: Supervisor) -> None:
    """More processes than there can be, each with as much as it may say, in one; HTTP is at work."""
    supervisor.processes[0].info = {"x": "x" * MAX_REPLY}
    entry(supervisor, "web").state = "ready"


def test_a_status_too_large_is_a_refusal_and_one_line_of_the_log(supervisor: Supervisor) -> None:
    overfill(supervisor)
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            supervisor._next_status_ns = 0
            supervisor._send_status()
            with pytest.raises(ControlError, match=f"the limit is {MAX_REPLY}"):
                supervisor._dispatch([b"client"], Request(1, "status"))
    assert [line["event"] for line in logs] == ["status_too_large"]


@pytest.mark.parametrize("fault", [RuntimeError("of this program"), None])
def test_all_processes_are_stopped_whatever_the_status(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, fault: Exception | None
) -> None:
    def fail() -> dict[str, Any]:
        raise fault or AssertionError

    overfill(supervisor)
    if fault is not None:
        monkeypatch.setattr(supervisor, "_status", fail)
    ready = "import signal, sys; print(flush=True); signal.sigwait([signal.SIGTERM]); sys.exit(7)"
    block = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]); "
    managed = entry(supervisor, "acquisition")
    managed.process = subprocess.Popen([sys.executable, "-c", block + ready], stdout=subprocess.PIPE)
    managed.pidfd = os.pidfd_open(managed.process.pid)
    with managed.process as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            with structlog.testing.capture_logs() as logs:
                supervisor._stop_all()
        finally:
            process.kill()
        assert process.returncode == 7
    assert [line["event"] for line in logs][-2:] == ["process_stopped", "stopped"]


def test_a_process_asks_other_processes_not_the_supervisor(supervisor: Supervisor, jobs: zmq.Socket[bytes]) -> None:
    jobs.send(pack_map({"type": "ask", "id": 4, "verb": "shutdown", "args": {}, "role": ""}))
    receive(supervisor)
    answer = unpack_map(jobs.recv())
    assert (answer["id"], answer["error"]["type"]) == (4, "denied")
    assert not supervisor._stop_reason


def test_a_request_to_stop_overtakes_everything_and_what_it_overtakes_is_refused(supervisor: Supervisor) -> None:
    """Two thousand heartbeats of who has no permit are one at a time; of several requests to stop each is answered."""
    managed, said, done = entry(supervisor, "acquisition"), dict[int, Reply](), list[str]()
    managed.process, managed.state = mock.Mock(pid=os.getpid()), "ready"
    worker = Worker("acquisition", "arm", supervisor.runtime.directory)

    def handler(verb: str) -> Handler:
        def handle(_: dict[str, Any]) -> dict[str, Any]:
            done.append(verb)
            return {"permit": "p"}

        return handle

    handlers = {verb: handler(verb) for verb in VERBS}
    routing = supervisor._routing
    routing._reply = lambda route, data: said.update({int(route[0]): decode_reply(data)})

    def ask(id: int, verb: str, **args: Any) -> str:
        try:
            routing.forward(Request(id, verb, {"arm": "arm", **args}), "acquisition", route=[b"%d" % id])
        except ControlError as error:
            return error.type
        return ""

    def answered(*ids: int) -> None:
        while not set(ids) <= set(said):
            receive(supervisor)

    try:
        worker.ready()
        receive(supervisor)
        for socket, own in ((supervisor._urgent, worker._urgent), (supervisor._private, worker.socket)):
            assert own is not None
            while not own.poll(10):  # until it is connected
                with contextlib.suppress(zmq.ZMQError):
                    socket.send_multipart([managed.identity, b""])
            while own.poll(10):
                own.recv()
        ask(1, "arm")
        assert worker.socket.poll(10_000)
        worker.serve(handlers)
        answered(1)
        refused = [ask(id, "heartbeat", permit=f"wrong {id}") for id in range(100, 2100)]
        assert refused == ["", *["too_many"] * 1999]
        assert [ask(2, "arm"), ask(3, "heartbeat", permit="p"), ask(4, "heartbeat", permit="p")] == ["", "", ""]
        assert [ask(id, verb) for id, verb in ((5, "abort"), (6, "abort"), (7, "abort"), (8, "disarm"))] == [""] * 4
        assert worker._urgent is not None
        assert worker._urgent.poll(10_000)
        del done[:]
        while "disarm" not in done:
            worker.serve_urgent(handlers)
        assert sorted(done) == ["abort", "disarm", "heartbeat"]
        while 2 not in said:  # it came before the request to stop, and is read after it
            worker.serve(handlers)
            receive(supervisor)
        answered(3, 5, 8)
        while not {4, 6, 7, 100} <= set(said):
            worker.serve_urgent(handlers)
            if supervisor._private.poll(10):
                receive(supervisor)
    finally:
        worker.close()
        managed.process = None
    assert (done.count("abort"), done.count("arm"), done.count("heartbeat")) == (2, 0, 3)
    assert "came after it" in str(said[2].error)
    assert [id for id, reply in said.items() if reply.error is not None] == [2]


def test_a_process_that_does_not_read_has_its_requests_refused(supervisor: Supervisor) -> None:
    """None is dropped without a word; and a request to stop is still sent."""
    with speaking(supervisor, "acquisition") as socket:
        managed = entry(supervisor, "acquisition")
        managed.state = "ready"
        socket.send(pack_map(GOOD[0]))
        receive(supervisor)
        given = {"for_s": "x" * 2000}
        types = set()
        for id in range(20_000):
            try:
                supervisor._routing.forward(Request(id, "arm", {"arm": "arm", **given}), "acquisition")
            except ControlError as error:
                types.add(error.type)
                break
        assert types == {"too_many"}


def test_clients_have_turns_and_whoever_waits_when_the_daemon_stops_is_told(supervisor: Supervisor) -> None:
    """Twelve that send all at once do not have one that asks for one thing wait behind all of theirs."""
    control, said = supervisor._control, list[tuple[bytes, Reply]]()
    control.reply = lambda route, data: said.append((route[0], decode_reply(data)))  # type: ignore[method-assign]
    for client in (*(b"%d" % k for k in range(12)), b"one"):
        for id in range(1, 2 if client == b"one" else 150):
            control._on_message([client, encode_request(Request(id, "ping", {}))], None)
    assert {reply.error.type for _, reply in said if reply.error} == {"too_many"}
    del said[:]
    control.serve()
    control.serve()
    assert [client for client, _ in said] == [*(b"%d" % k for k in range(12)), b"one", b"0", b"1", b"2"]
    del said[:]
    control.refuse_all()
    assert len(said) > 900
    assert {reply.error.type for _, reply in said if reply.error} == {"unavailable"}
    assert not control.busy


#: Connects 300 times when it is told to, with all that belongs to it.
CROWD = "import sys, zmq; input(); c = zmq.Context(); s = [c.socket(zmq.DEALER) for _ in range(300)];"
CROWD += "[(each.set(zmq.RECONNECT_IVL, -1), each.connect(sys.argv[1])) for each in s]; input()"


def test_connections_leave_the_daemon_files_to_open(supervisor: Supervisor) -> None:
    """Nothing that needs one ends it while there is none; who has taken them is hung up on, when stops are done."""
    control, before, done = supervisor._control, resource.getrlimit(resource.RLIMIT_NOFILE), list[str]()
    control._dispatch = lambda _, request: done.append(request.verb)
    command = [sys.executable, "-c", CROWD, supervisor.endpoints["control"]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as crowd, contextlib.ExitStack() as stack:
        stack.callback(crowd.kill)
        client = stack.enter_context(supervisor._context.socket(zmq.DEALER))
        client.connect(supervisor.endpoints["control"])
        client.send(encode_request(Request(1, "abort", {"arm": "arm"})))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 100, before[1]))
        print(file=crowd.stdin, flush=True)
        with contextlib.suppress(OSError):
            while True:
                os.close(os.dup(0))
                time.sleep(0.001)
        supervisor._pool.ready = True
        supervisor._pool.keep_running(supervisor.config)
        assert [process.pid for process in supervisor.processes if process.pid or not process.next_start_ns] == []
        assert supervisor._status()["daemon"]["usage"]["open_fds"] > 100
        control.limit_memory()
        assert (control.reopened, done) == (1, ["abort"])
        os.close(os.dup(0))


def test_what_a_killed_daemon_has_left_standing_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was stopped, or hangs, does not hear of the end of its supervisor."""
    monkeypatch.setattr(directories, "LEFT_S", 0.2)
    old = tmp_path / "r" / str(1 << 23)  # more than any process has
    old.mkdir(parents=True)
    command = [sys.executable, "-c", "input()", "service.worker.entry", str(old)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        process.send_signal(signal.SIGSTOP)
        directories.make_runtime(config(tmp_path, ARM, runtime_dir=str(old.parent)))
        assert process.wait(10.0) == -signal.SIGKILL
    assert not old.exists()
