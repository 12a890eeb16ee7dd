"""Requests of every type and magnitude: each has one answer, and the process that moves the arm goes on."""

from __future__ import annotations

import copy
import math
import os
import random
from pathlib import Path
from typing import Any

import zmq

from service.motion.run_verbs import RunRequests, make_runs
from service.protocol.control import Request, check_request, decode_request, encode_request
from service.protocol.messages import MAX_REPLY, WireError, pack_map, unpack_map
from service.worker.worker import Worker
from tests.lab.daemon.daemons import config
from tests.lab.daemon.motion_bench import ROBOT, Bench, trajectory
from tests.unit.service.motion.test_motion_requests import rows, table

REQUESTS = int(os.environ.get("THETAD_FUZZ", "300"))
ODD = (
    1e308, -1e308, 5e-324, 1e155, math.nan, math.inf, -0.0, 0, 1 << 63, (1 << 64) - 1, -(1 << 63), True, None, "", "1",
    "x" * 300, b"\xff", [], {}, [1e308] * 2000, [[0.0] * 7] * 500, [[]] * 9, [None], {"q": 1e308},
)  # fmt: skip


def changed(rng: random.Random, args: dict[str, Any]) -> dict[str, Any]:
    """The arguments with some values in them, at any depth, replaced by odd ones."""
    args = copy.deepcopy(args)
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        place: Any = args
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            deep = [key for key in keys if isinstance(place[key], (list, dict))]
            key = rng.choice(deep if deep and rng.random() < 0.7 else keys)  # most of a trajectory is numbers
            if not isinstance(place[key], (list, dict)) or not place[key] or rng.random() < 0.2:
                break
            place = place[key]
        place[key] = rng.choice(ODD) if rng.random() < 0.5 else rng.choice((-1.0, 1.0)) * 10.0 ** rng.uniform(-320, 308)
    return args


class Process:
    """The requests of an arm's acquisition, and the supervisor's end of its socket."""

    def __init__(self, path: Path, router: zmq.Socket[bytes]) -> None:
        arm = {"name": "a", "robot": "arm7", "driver": {"kind": "sim", "mode": "csp"}}
        (path / "config.json").write_text(config(path, arm).model_dump_json(), encoding="utf-8")
        self.bench, self.router = Bench(), router
        self.worker = Worker("acquisition", "a", path)
        router.bind(self.worker.runtime.supervisor)
        self.worker.ready()
        assert router.poll(10_000)
        self.peer = router.recv_multipart()[0]
        runs = make_runs(self.worker, self.worker.arm, ROBOT, self.bench.driver, 1000.0)
        assert isinstance(runs, RunRequests)
        self.runs = runs

    def ask(self, request: Request) -> dict[str, Any]:
        """Return the one reply to a request, while frames come."""
        message = {"id": request.id, "verb": request.verb, "args": request.args}
        self.router.send_multipart([self.peer, pack_map(message, MAX_REPLY)])
        for _ in range(20_000):
            self.worker.serve(self.runs.handlers)
            self.runs.step(self.bench.driver.read(0.0))
            while self.router.poll(0):
                reply = unpack_map(self.router.recv_multipart()[1], MAX_REPLY, text=MAX_REPLY)
                if reply["type"] == "reply":
                    assert reply["id"] == request.id
                    return reply
        raise AssertionError(request)


def test_every_request_has_an_answer_and_none_ends_the_process(tmp_path: Path) -> None:
    rng, kinds = random.Random(5), set()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        process = Process(tmp_path, router)
        motions = (trajectory().as_message(), table(rows()).as_message())
        token = "none"
        for id in range(1, REQUESTS + 1):
            whole: dict[str, dict[str, Any]] = {
                "arm": {"for_s": 60.0}, "disarm": {}, "abort": {}, "heartbeat": {"permit": token},
                "zero_force": {"permit": token, "for_s": 1.0, "friction_share": 0.5, "model": None},
                "run_trajectory": {
                    "permit": token, "trajectory": rng.choice(motions), "periods": 1, "hold": False, "name": "x",
                    "changed_robot": True,
                },
            }  # fmt: skip
            verb = rng.choice((*whole, *["run_trajectory"] * 12))
            if verb == "run_trajectory" and process.runs.report()["state"] != "armed":
                granted = process.ask(Request(id, "arm", {"arm": "a", "for_s": 60.0}))
                token = whole[verb]["permit"] = granted.get("result", {}).get("permit", "none")
            args = changed(rng, whole[verb]) if whole[verb] else {}
            try:
                request = check_request(decode_request(encode_request(Request(id, verb, args))), ("a",))
            except WireError:
                continue
            reply = process.ask(request)
            kinds.add((verb, reply["error"]["type"] if "error" in reply else "ok"))
            if verb == "run_trajectory" and "error" not in reply:  # its checks are over: make room for the next
                process.ask(Request(id, "abort", {"arm": "a"}))
        process.bench.driver.close()
        process.worker.close()
    assert {("arm", "ok"), ("run_trajectory", "bad_argument"), ("abort", "ok")} <= kinds
    assert not [verb for verb, kind in kinds if kind == "failed" and verb != "arm"]  # those are faults of the program
