"""Requests of every type and magnitude: each has one answer, and the process that moves the arm goes on."""

import contextlib
import random
from pathlib import Path
from typing import Any

import zmq

from service.models.hand_guiding_arrays import plain_model
from service.motion.run_verbs import make_runs
from service.protocol.control import VERBS, Request, check_request, decode_request, encode_request
from service.protocol.messages import MAX_REPLY, WireError, pack_map, unpack_map
from service.worker.worker import Worker
from tests.lab.daemon.daemons import config
from tests.lab.daemon.motion_bench import ROBOT, Bench, trajectory
from tests.lab.hand_guiding.rig import exact
from tests.lab.odd_values import REQUESTS, changed
from tests.unit.service.motion.test_motion_requests import rows, table

MODEL = {"values": plain_model(exact(ROBOT.model.name)), "model": "m", "digest": "d", "speeds": [1.0] * 7}


def test_every_request_has_an_answer_and_none_ends_the_process(tmp_path: Path) -> None:
    rng, kinds, token = random.Random(5), set(), "none"
    arm = {"name": "a", "robot": "arm7", "driver": {"kind": "sim", "mode": "csp"}, "guiding": {}}
    (tmp_path / "config.json").write_text(config(tmp_path, arm).model_dump_json(), encoding="utf-8")
    bench, worker = Bench(), Worker("acquisition", "a", tmp_path)
    runs = make_runs(worker, worker.arm, ROBOT, bench.driver, 1000.0)
    motions = (trajectory().as_message(), table(rows()).as_message())
    with worker.context.socket(zmq.ROUTER) as router:
        router.linger = 0
        router.bind(worker.runtime.supervisor)
        worker.ready()
        peer = router.recv_multipart()[0]

        def ask(verb: str, args: dict[str, Any]) -> dict[str, Any]:
            """Return the one reply to a request, while frames come."""
            router.send_multipart([peer, pack_map(Request(1, verb, args), MAX_REPLY)])
            for _ in range(20_000):
                worker.serve(runs.handlers)
                runs.step(bench.driver.read(0.0))
                while router.poll(0):
                    reply = unpack_map(router.recv_multipart()[1], MAX_REPLY, text=MAX_REPLY)
                    if reply["type"] == "reply":
                        return reply
                    if reply["type"] == "ask":
                        answer = {"type": "answer", "id": reply["id"], "result": changed(rng, MODEL)}
                        router.send_multipart([peer, pack_map(answer, MAX_REPLY)])
            raise AssertionError((verb, args))

        wanted = {("run_trajectory", "ok"), ("run_trajectory", "bad_argument"), ("zero_force", "ok")}
        for k in range(4 * REQUESTS):
            if k >= REQUESTS and wanted <= kinds:
                break
            verb = rng.choice(("arm", "disarm", "abort", "heartbeat", *["zero_force"] * 4, *["run_trajectory"] * 12))
            if verb in ("run_trajectory", "zero_force") and runs.report()["state"] != "armed":
                token = ask("arm", {"arm": "a", "for_s": 60.0}).get("result", {}).get("permit", "none")
            args: dict[str, Any] = {"permit": token, "for_s": 1.0, "friction_share": 0.5, "model": None}
            args |= {"damping_time_s": 1.0, "speed_share": 0.1, "trajectory": rng.choice(motions), "periods": 1}
            args |= {"hold": False, "name": "x"}
            args = {name: args[name] for name in args if name in VERBS[verb].arguments}
            request = Request(1, verb, changed(rng, args))
            with contextlib.suppress(WireError):
                request = check_request(decode_request(encode_request(request)), ("a",))
                reply = ask(verb, request.args)
                kinds.add((verb, reply["error"]["type"] if "error" in reply else "ok"))
            if runs._controller.busy:
                ask("heartbeat", {"arm": "a", "permit": token})  # it begins
            if runs.moving or runs._controller.busy:
                ask("abort", {"arm": "a"})  # makes room for the next
    bench.driver.close()
    worker.close()
    assert wanted <= kinds
    assert not [verb for verb, kind in kinds if kind == "failed" and verb != "arm"]  # those are faults of the program
