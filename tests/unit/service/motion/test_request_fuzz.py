"""Requests of every type and magnitude: each has one answer, and the process that moves the arm goes on."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import random
from pathlib import Path
from typing import Any

import zmq

from service.motion.run_verbs import RunRequests, make_runs
from service.protocol.control import VERBS, Request, check_request, decode_request, encode_request
from service.protocol.messages import MAX_REPLY, WireError, pack_map, unpack_map
from service.worker.worker import Worker
from tests.lab.daemon.daemons import config
from tests.lab.daemon.motion_bench import ROBOT, Bench, trajectory
from tests.unit.service.motion.test_motion_requests import rows, table

REQUESTS = int(os.environ.get("THETAD_FUZZ", "150"))
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


def test_every_request_has_an_answer_and_none_ends_the_process(tmp_path: Path) -> None:
    rng, kinds, token = random.Random(5), set(), "none"
    arm = {"name": "a", "robot": "arm7", "driver": {"kind": "sim", "mode": "csp"}}
    (tmp_path / "config.json").write_text(config(tmp_path, arm).model_dump_json(), encoding="utf-8")
    bench, worker = Bench(), Worker("acquisition", "a", tmp_path)
    runs = make_runs(worker, worker.arm, ROBOT, bench.driver, 1000.0)
    assert isinstance(runs, RunRequests)
    motions = (trajectory().as_message(), table(rows()).as_message())
    with worker.context.socket(zmq.ROUTER) as router:
        router.linger = 0
        router.bind(worker.runtime.supervisor)
        worker.ready()
        peer = router.recv_multipart()[0]

        def ask(verb: str, args: dict[str, Any]) -> dict[str, Any]:
            """Return the one reply to a request, while frames come."""
            router.send_multipart([peer, pack_map({"id": 1, "verb": verb, "args": args}, MAX_REPLY)])
            for _ in range(20_000):
                worker.serve(runs.handlers)
                runs.step(bench.driver.read(0.0))
                while router.poll(0):
                    reply = unpack_map(router.recv_multipart()[1], MAX_REPLY, text=MAX_REPLY)
                    if reply["type"] == "reply":
                        return reply
            raise AssertionError((verb, args))

        for _ in range(REQUESTS):
            verb = rng.choice(("arm", "disarm", "abort", "heartbeat", "zero_force", *["run_trajectory"] * 12))
            args: dict[str, Any] = {"permit": token, "for_s": 1.0, "friction_share": 0.5, "model": None}
            if verb == "run_trajectory":
                if runs.report()["state"] != "armed":
                    token = ask("arm", {"arm": "a", "for_s": 60.0}).get("result", {}).get("permit", "none")
                args = {"permit": token, "trajectory": rng.choice(motions), "periods": 1, "hold": False, "name": "x"}
            args = {name: args[name] for name in args if name in VERBS[verb].arguments}
            request = Request(1, verb, changed(rng, args) if args else {})
            with contextlib.suppress(WireError):
                request = check_request(decode_request(encode_request(request)), ("a",))
                reply = ask(verb, request.args)
                kinds.add((verb, reply["error"]["type"] if "error" in reply else "ok"))
            if runs.moving or (runs.report()["run"] and runs.report()["run"]["outcome"] == "checked"):
                ask("abort", {"arm": "a"})  # makes room for the next
    bench.driver.close()
    worker.close()
    assert {("run_trajectory", "ok"), ("run_trajectory", "bad_argument"), ("abort", "ok")} <= kinds
    assert not [verb for verb, kind in kinds if kind == "failed" and verb != "arm"]  # those are faults of the program
