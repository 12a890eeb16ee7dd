"""Hours of estimation, millions of bad frames and a running daemon: numbers, flags and memory stay where they belong.

make soak [DURATION=3600]        or: python benchmarks/soak.py [--only PART] [--seed N] [--plot FILE] [--json]

Parts: `estimator`, ten million frames of online estimation on a simulated arm, as fast as they go: rich motion, an hour
with one joint at rest, an hour with all at rest, rich motion again, and a step in one joint's friction;
`elastic`, ten million frames of an elastic joint, most of them at rest or at one speed;
`ethercat-frames`, a million bad frames to simulated drives, and a million with bad outputs and messages to drives in
operation; `ethercat-decoding`, a million random images through the driver's decoding; `service`, the daemon at 1 kHz in
real time for DURATION seconds, with clients, jobs and random faults.
"""

import argparse
import faulthandler
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import elastic_soak, estimator_soak, service_soak
from sim_backend.ethercat.registers import AL_STATUS
from sim_backend.ethercat.wire import BRD
from tests.lab.ethercat import decoding_fuzzer
from tests.lab.ethercat.frame_fuzzer import fuzz, fuzz_operational
from tests.lab.ethercat.frames import build_frame, parse_frame, physical
from tests.lab.ethercat.segment_process import make_segment

PHASES = estimator_soak.Phases(rich=1300.0, one_held=3600.0, all_held=3600.0, rich_again=1300.0, step=200.0)
FRAMES, FRAMES_EACH, DRIVES = 1_000_000, 50_000, 6
PARTS = ("estimator", "elastic", "ethercat-frames", "ethercat-decoding", "service")
IMAGES, IMAGES_EACH = 1_000_000, 50_000
MAX_S = 600.0  # for FRAMES_EACH or IMAGES_EACH, which take some seconds: a hang ends with a traceback
LIMIT_ERROR = 0.01  # of the parameters, in the torque-weighted norm
LIMIT_STEP = 0.05  # of the step's size, five seconds after it


def on_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run_estimator() -> dict[str, Any]:
    """Run the scenario; `problems` lists what is worse than allowed."""
    told = [0.0]

    def progress(t: float, phase: str, error: float) -> None:
        if time.monotonic() - told[0] > 30.0:
            told[0] = time.monotonic()
            on_progress(f"{t:6.0f} s of {PHASES.ends['step']:g} s, {phase}: error {error:.2%}")

    result = asdict(estimator_soak.soak(phases=PHASES, progress=progress))
    problems = result["problems"]
    problems += [f"{phase}: error {e:.2%}" for phase, e in result["error"].items() if not e < LIMIT_ERROR]
    if not result["step_error"] < LIMIT_STEP:
        problems.append(f"step of friction: off by {result['step_error']:.1%} of it after five seconds")
    return result


def estimator_table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [f"{result['frames']} frames, {result['parameters']} parameters"]
    lines += [
        f"{phase:12} worst error {error:.3%} in the torque-weighted norm" for phase, error in result["error"].items()
    ]
    lines.append(f"step of friction: off by {result['step_error']:.1%} of it after five seconds")
    lines.append(f"excited flags: {result['flags_wrong']} wrong of {result['flags_checked']} checked")
    return "\n".join(lines + [f"PROBLEM: {problem}" for problem in result["problems"][:20]])


def run_frames() -> dict[str, Any]:
    """Send bad frames to one segment after the other, each time others."""
    problems: list[str] = []
    answers = 0
    happened: Counter[str] = Counter()
    told = time.monotonic()
    for seed in range(FRAMES // FRAMES_EACH):
        bus = make_segment(DRIVES, ring=True)
        with watched(f"frames of seed {seed}"):
            answered, now_ns = fuzz(bus, FRAMES_EACH, seed)
            happened += fuzz_operational(make_segment(DRIVES, ring=True), FRAMES_EACH, seed)
        answers += answered
        question = build_frame([physical(BRD, 0, AL_STATUS, bytes(2))])
        heard = [parse_frame(reply)[0].working_counter for _, reply in bus.exchange(question, 0, now_ns)]
        if heard != [DRIVES]:
            problems.append(f"seed {seed}: {heard or 'none'} of {DRIVES} drives answer afterwards")
        if time.monotonic() - told > 10.0:
            told = time.monotonic()
            on_progress(f"{(seed + 1) * FRAMES_EACH} frames of {FRAMES}, twice")
    seen = {what: happened[what] for what in ("in OP", "enabled", "mailbox requests", "mailbox replies")}
    problems += [f"drives in operation: {count} {what}" for what, count in seen.items() if count < FRAMES // 20]
    return {"frames": FRAMES, "answers": answers, "happened": dict(happened), "problems": problems}


def frames_table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [f"{result['frames']} bad EtherCAT frames, {result['answers']} answers"]
    lines.append(f"{result['frames']} frames to drives in operation: {counts(result['happened'])}")
    return "\n".join(lines + [f"PROBLEM: {problem}" for problem in result["problems"][:20]])


def run_decoding() -> dict[str, Any]:
    """Decode random images, each as the driver does and by hand."""
    happened: Counter[str] = Counter()
    told = time.monotonic()
    for seed in range(IMAGES // IMAGES_EACH):
        with watched(f"images of seed {seed}"):
            happened += decoding_fuzzer.fuzz(IMAGES_EACH, seed)
        if time.monotonic() - told > 10.0:
            told = time.monotonic()
            on_progress(f"{happened['decoded']} images of {IMAGES}")
    missing = [what for what in ("layouts", "layouts refused", "wrong lengths refused", "reals") if not happened[what]]
    problems = [f"images without any {what}" for what in missing]
    return {"happened": dict(happened), "problems": problems}


def decoding_table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [f"random images: {counts(result['happened'])}"]
    return "\n".join(lines + [f"PROBLEM: {problem}" for problem in result["problems"][:20]])


def counts(happened: dict[str, int]) -> str:
    return ", ".join(f"{number} {what}" for what, number in happened.items())


@contextmanager
def watched(what: str) -> Iterator[None]:
    """End the process with a traceback when the block hangs, and say in its errors what it was about."""
    faulthandler.dump_traceback_later(MAX_S, exit=True)
    try:
        yield
    except Exception as error:
        error.add_note(f"in {what}")
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, help="one part alone")
    parser.add_argument("--seed", type=int, default=1, help="draws the faults of the running daemon (1)")
    parser.add_argument("--plot", type=Path, help="draw the running daemon's memory and latencies into this file")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    if arguments.only in (None, "estimator"):
        results["estimator"] = run_estimator()
        on_progress(estimator_table(results["estimator"]))
    if arguments.only in (None, "elastic"):
        results["elastic"] = elastic_soak.run(on_progress)
        on_progress(elastic_soak.table(results["elastic"]))
    if arguments.only in (None, "ethercat-frames"):
        results["ethercat-frames"] = run_frames()
        on_progress(frames_table(results["ethercat-frames"]))
    if arguments.only in (None, "ethercat-decoding"):
        results["ethercat-decoding"] = run_decoding()
        on_progress(decoding_table(results["ethercat-decoding"]))
    if arguments.only in (None, "service"):
        duration_s = float(os.environ.get("DURATION", "3600"))
        results["service"] = service_soak.run(duration_s, on_progress, seed=arguments.seed, plot=arguments.plot)
        on_progress(service_soak.table(results["service"]))
    problems = [problem for result in results.values() for problem in result["problems"]]
    if arguments.json:
        sys.stdout.write(json.dumps(results) + "\n")
    on_progress("soak: " + ("all is well" if not problems else f"{len(problems)} problems"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
