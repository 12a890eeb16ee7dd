"""Goldens: outputs that stay the same to the byte while modules move and names change.

`python -m benchmarks.goldens FOLDER` writes one text file per golden.  Run it before and after a change: `diff -r` of
the two folders is empty if nothing changed.  `python -m benchmarks.goldens --compare A B` prints the files that differ
and exits with 1 if there are any.

Placeholders in angle brackets stand for times, folders and the version of thetad.  Schemas come without the names and
docstrings of classes, which no user sees.
"""

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import msgpack
import numpy as np
from pydantic import TypeAdapter

from drivers.ads.config import AdsConfig
from drivers.ads.layout import Sizes
from drivers.ads.structured_text import files as structured_text
from drivers.ethercat.config import EthercatConfig
from drivers.files.importing._mapping import MappingFile
from drivers.files.importing.pose_mapping import PoseMappingFile
from drivers.files.recordings.format import RecordingMeta
from drivers.files.robots._schema import RobotTable
from drivers.frame import CHANNELS, JointFrame
from rt_core.excitation.fourier import FourierSeries
from rt_core.model.base import base_parameters
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.forward import equations_of_motion
from rt_core.model.parameters import standard_layout, standard_parameters
from rt_core.model.regressor import regressor
from rt_core.online import OnlineEstimator, OnlineSettings
from service.bridge._schemas import arm_streams, frame_streams, generic_stream
from service.bridge.ros2 import description as ros2_description
from service.cli.jobs._kinds import describe_kind
from service.cli.main import build_parser
from service.config.load import Config
from service.io.state_file import save_state
from service.jobs.kinds import KINDS, find_kind
from service.models._schema import ModelDocument
from service.protocol import control
from service.protocol import messages as wire
from service.protocol.json_values import json_values
from service.protocol.roles import ROLES, allows
from service.web._actions import Action
from service.web._app import page_routes
from service.web._dashboard import api_routes
from service.web._metrics import FAMILIES
from sim_backend.arm.robot import SimulatedArm
from sim_backend.arm.settings import MotionSettings, SimSettings
from sim_backend.ethercat.settings import SegmentSettings
from sim_backend.plc.settings import PlcSettings
from tests.lab.arms.simulated import random_arm
from tests.lab.command_line import simulate, thetad
from tests.lab.jobs.job_run import small_arm, workspace

Goldens = Mapping[str, str]
#: What output may depend on beside the code: the width of help, threads of BLAS, the order of hashes, colours.
FIXED = {
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"),
    **{"COLUMNS": "100", "PYTHONHASHSEED": "0", "MPLBACKEND": "Agg", "NO_COLOR": "1", "LC_ALL": "C.UTF-8", "TZ": "UTC"},
}
NOW_NS = 1_767_323_045_000_000_000  # 2026-01-02
SHOWN = 20_000  # characters of a result that are written out beside its hash
FRAMES = 2000


def lines(*values: object) -> str:
    """Return one value a line."""
    return "".join(f"{value}\n" for value in values)


def dumped(value: Any) -> str:
    """Return `value` as JSON in its own order; its floats come back to the bit."""
    return json.dumps(json_values(value), indent=1) + "\n"


def sha256(data: bytes) -> str:
    """Return the hash of `data` as text."""
    return hashlib.sha256(data).hexdigest()


def bits(name: str, value: Any) -> str:
    """Return type, shape and hash of an array, and its sum for the eye; any other value as it is."""
    if not isinstance(value, np.ndarray):
        return f"{name}: {value.hex() if isinstance(value, float) else value!r}"
    total = float(np.nansum(value)).hex() if value.dtype.kind == "f" else int(value.sum())
    return f"{name}: {value.dtype} {value.shape} sha256 {sha256(np.ascontiguousarray(value).tobytes())} sum {total}"


def neutral(text: str, folder: Path) -> str:
    """Return `text` with placeholders for the folder, for the time of creation and for the version."""
    text = text.replace(str(folder), "<folder>")
    text = re.sub(r"(\bcreated\W{1,30})\d{4}-\d\d-\d\dT[\d:]+(\+00:00|Z)", r"\1<time>", text)
    return re.sub(r"(\bthetad\W{1,30})\d+\.\d+[\w.]*", r"\1<version>", text)


def schema_of(kind: Any) -> str:
    """Return the JSON schema of a type with definitions in place, without titles and docstrings of classes."""
    schema = TypeAdapter(kind).json_schema()
    definitions = schema.pop("$defs", {})

    def whole(value: Any) -> Any:
        if isinstance(value, list):
            return [whole(item) for item in value]
        if not isinstance(value, dict):
            return re.sub("^#/.*", "<class>", value) if isinstance(value, str) else value
        if "$ref" in value:
            rest = {key: item for key, item in value.items() if key != "$ref"}
            return whole(definitions[value["$ref"].rpartition("/")[2]] | rest)
        names = {"title", "description"} if "properties" in value else {"title"}
        return {key: whole(item) for key, item in value.items() if key not in names or isinstance(item, dict)}

    return dumped(whole(schema))


def help_goldens(_folder: Path) -> Goldens:
    """Return the help of every command and subcommand, and what is told of the kinds of jobs."""

    def walk(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
        yield parser.prog.replace(" ", "_"), parser.format_help()
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for child in action.choices.values():
                    yield from walk(child)

    return {**dict(walk(build_parser())), "job_kinds": dumped([describe_kind(find_kind(name)) for name in KINDS])}


def messages() -> Iterator[wire.Message]:
    """Yield one message of every kind."""
    envelope = wire.Envelope("estimator", 1_767_323_045_000_000, 41, 2_500_000_000, "sim", 3_000_000_123)
    frame = JointFrame(41, 2_500_000_000, 3_000_000_123)
    for k, name in enumerate(CHANNELS):
        setattr(frame, name, np.array([0.1 * k, -1.5, np.nan]))
    frame.status_word, frame.valid = np.array([0x27, 0x1237, 0]), np.array([True, True, False])
    yield wire.FrameMessage("left", envelope, frame)
    two = np.array([1.25, np.nan])
    yield wire.EstimateMessage(
        "left", envelope, theta=two, validated=two * 2.0, std=two / 8.0, status=("estimated", "unestimated"),
        excited=np.array([True, False]), lam=np.array([0.999]), innovation=np.array([-0.25]), sigma=np.array([0.5]),
        delay_s=0.125, frames=7, used=6, masked=1, lost=2, resets=0, hash="ab" * 32,
    )  # fmt: skip
    yield wire.TorqueMessage("left", envelope, np.array([1.0, 2.0]), np.array([0.5, 2.5]), np.array([0.5, -0.5]))
    body = {"text": "fc2 has changed", "data": {"joints": {"joint_2": "drifted"}, "since": 1.5}, "none": None}
    for kind in ("elastic", "status", "stats", "meta", "event"):
        yield wire.BodyMessage("left", kind, envelope, body)


def wire_goldens(_folder: Path) -> Goldens:
    """Return samples of what passes between processes and to clients, and schemas of what users write."""
    out = {}
    for message in messages():
        topic, payload = wire.encode(message)
        again = wire.encode(wire.decode([topic, payload])) == [topic, payload]
        name = topic.decode().partition("/")[2]
        out[name] = lines(topic.decode(), payload.hex(), f"the same again: {again}") + dumped(msgpack.unpackb(payload))
    asked = control.encode_request(control.Request(7, "record", {"arm": "left", "action": "start"}))
    replies = control.encode_result(7, {"x": [1.5, None]}), control.encode_error(7, "denied", "needs the role operate")
    out["control"] = lines(asked.hex(), control.decode_request(asked).args, *(reply.hex() for reply in replies))
    out["control"] += lines(*(f"{msgpack.unpackb(reply)} {control.decode_reply(reply).error}" for reply in replies))
    verbs = {name: asdict(verb) | {"of an arm": name in control.ARM_VERBS} for name, verb in control.VERBS.items()}
    out["verbs"] = dumped(verbs) + lines(sorted(control.STOPPING), sorted(control.UNLIMITED))
    out["roles"] = lines(*(f"{role}: {[needed for needed in ROLES if allows(role, needed)]}" for role in ROLES))
    out["families"] = dumped([asdict(family) for family in FAMILIES])
    routes = [*api_routes(mock.Mock(), mock.Mock(), mock.Mock(), mock.Mock()), *page_routes()]
    out["http_routes"] = lines(*(f"{sorted(route.methods or ())} {route.path}" for route in routes))
    meta = RecordingMeta("left", ("first", "second"), ("rad", "m"), 500.0)
    streams = arm_streams("left") + frame_streams(meta)
    streams += [generic_stream("left", kind, "estimator") for kind in ("status", "elastic")]
    out["foxglove"] = dumped([asdict(stream) for stream in streams])
    out["ros2"] = dumped(ros2_description(["left"], "tcp://127.0.0.1:5001", "tcp://127.0.0.1:5002"))
    out["recording"] = dumped(meta.to_metadata())
    schemas = {
        "daemon": Config, "robot": RobotTable, "mapping": MappingFile, "pose_mapping": PoseMappingFile,
        "ethercat": EthercatConfig, "ads": AdsConfig, "segment": SegmentSettings, "plc": PlcSettings,
        "model": ModelDocument, "http_action": Action,
        **{f"job_{name}": find_kind(name).parameters for name in KINDS},
    }  # fmt: skip
    return out | {f"schema_{name}": schema_of(kind) for name, kind in schemas.items()}


def model_goldens(folder: Path) -> Goldens:
    """Return two models of one recording, with their exports and validations, as the command line makes them."""
    arm = small_arm(folder / "arm2.toml")
    recording = simulate(folder / "arm2.mcap", arm, seed=1, seconds=8.0)
    out = {"recording": lines(sha256(recording.read_bytes()))}
    for method in ("wls", "physical"):
        model = folder / f"{method}.yaml"
        fit = ("--robot", arm, "--method", method, "--span", "0:0.6")
        commands: dict[str, tuple[object, ...]] = {
            "identify.json": ("identify", recording, *fit, "-o", model, "--json"),
            "identify": ("identify", recording, *fit),
            "validate.json": ("validate", model, recording, "--span", "0.6:1", "--json"),
            "validate": ("validate", model, recording, "--span", "0.6:1"),
            "show": ("models", "show", model),
            "export.urdf": ("models", "export", model, "--format", "urdf"),
            "export.py": ("models", "export", model, "--format", "python"),
        }
        for name, command in commands.items():
            done = thetad(*command)
            out[f"{method}_{name}"] = neutral(f"{done.out}{done.err}exit code {done.code}\n", folder)
        out[f"{method}.yaml"] = neutral(model.read_text(encoding="utf-8"), folder)
    return out


def job_goldens(folder: Path) -> Goldens:
    """Return outcomes and results of cheap jobs; searches among them would show any sum in another order."""
    arm = small_arm(folder / "stribeck2.toml", "stribeck")
    recording = simulate(folder / "stribeck2.mcap", arm, seed=2, seconds=8.0)
    quick = {"harmonics": 3, "period_s": 5.0, "particles": 10, "iterations": 5, "rate_hz": 20.0, "seed": 3, "starts": 1}
    fit = {"recording": "r", "robot": str(arm), "span": "0:0.6"}
    model = folder / "identify" / "model.yaml"
    recipes: tuple[tuple[str, str, dict[str, Any], dict[str, Path]], ...] = (
        ("identify", "identify", fit | {"method": "iwls", "essential": True}, {"recording": recording}),
        ("identify_search", "identify", fit | {"method": "lm", "starts": 2}, {"recording": recording}),
        ("validate", "validate", {"model": "m", "recording": "r"}, {"model": model, "recording": recording}),
        ("excite", "excite", {"robot": str(arm), **quick}, {}),
    )  # fmt: skip
    out = {}
    for name, found, parameters, files in recipes:
        kind, hashes = find_kind(found), []
        outcome = kind.run(kind.read(parameters), workspace(folder / name, **files))
        for path in sorted((folder / name).iterdir()):
            text = neutral(path.read_text(encoding="utf-8"), folder)
            hashes.append(f"{path.name} {sha256(text.encode())}")
            if len(text) <= SHOWN:
                out[f"{name}_{path.name}"] = text
        out[name] = neutral(dumped(asdict(outcome)) + lines(*hashes), folder)
    return out


def estimated() -> tuple[OnlineEstimator, dict[str, np.ndarray]]:
    """Return an estimator that has seen `FRAMES` frames of a simulated arm, and all that was simulated."""
    model = random_arm(3, 22, coupled=True)
    motion = MotionSettings(seed=1, candidates=1, base_frequency_hz=0.2)
    data = SimulatedArm(model, SimSettings(rate_hz=200.0, seed=1, torque_noise=0.004), motion).simulate(FRAMES / 200.0)
    estimator = OnlineEstimator(model, OnlineSettings(update_hz=50.0, memory_s=8.0, excitation_s=3.0), 200.0)
    for k in range(FRAMES):
        estimator.step(round(data.t[k] * 1e9), k, data.channels["q"][k], data.channels["tau"][k])
    return estimator, {"t": data.t, **data.channels}


def state_goldens(folder: Path) -> Goldens:
    """Return what is kept on the disk: states of an estimator."""
    estimator, _ = estimated()
    state: dict[str, Any] = estimator.state()
    small: dict[str, Any] = {"theta": np.arange(6.0).reshape(2, 3), "frames": 12, "note": "x", "lam": 0.5}
    with mock.patch.object(time, "time_ns", return_value=NOW_NS):
        save_state(folder / "online", state, estimator.state_hash)
        save_state(folder / "small", small, "owner")
    return {
        "online": lines(*(bits(*item) for item in state.items()), f"file {sha256((folder / 'online').read_bytes())}"),
        "file": lines((folder / "small").read_bytes().hex()),
    }


def number_goldens(_folder: Path) -> Goldens:
    """Return outputs of kernels to the bit."""
    model, rng = random_arm(5, 3, coupled=True), np.random.default_rng(5)
    q, dq, ddq, tau = rng.uniform(-2.0, 2.0, (4, 37, model.n))
    assert model.inertial is not None
    base, rigid = base_parameters(model), (model.geometry, model.gravity, model.inertial)
    mass, bias = equations_of_motion(*rigid, q, dq)
    dynamics = {
        "regressor": regressor(model, standard_layout(model), q, dq, ddq),
        "base regressor": regressor(model, base.layout, q, dq, ddq),
        "base mapping": base.mapping,
        "theta": base.theta(standard_parameters(model, base.standard)),
        "inverse dynamics": inverse_dynamics(*rigid, q, dq, ddq),
        "forward dynamics": np.linalg.solve(mass, (tau - bias)[..., None])[..., 0],
    }
    series = FourierSeries(0.13, *(rng.normal(size=shape) for shape in (3, (3, 4), (3, 4))))
    motion = dict(zip(("q", "dq", "ddq"), series.sample(np.linspace(0.0, 20.0, 101)), strict=True))
    estimator, data = estimated()
    online = {"covariance": estimator.covariance, **asdict(estimator.report()), "state hash": estimator.state_hash}

    def shown(values: Mapping[str, Any]) -> str:
        return lines(*(bits(*item) for item in values.items()))

    return {
        "dynamics": shown(dynamics) + lines(*base.names, *base.expressions),
        "simulation": shown(data),
        "online": shown(online) + lines(*(float(value).hex() for value in estimator.theta)),
        "online_meta": dumped(estimator.meta),
        "fourier": shown(motion) + dumped(series.as_dict()),
        "structured_text": lines(*structured_text(Sizes(3)).values()),
    }


GROUPS: dict[str, Callable[[Path], Goldens]] = {
    "help": help_goldens, "wire": wire_goldens, "models": model_goldens, "jobs": job_goldens, "state": state_goldens,
    "numbers": number_goldens,
}  # fmt: skip


def write(target: Path) -> None:
    """Write all goldens, a folder for each group, and say what each took."""
    for group, make in GROUPS.items():
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as work:
            found = make(Path(work))
        (target / group).mkdir(parents=True)
        for name, text in found.items():
            (target / group / (name if "." in name else f"{name}.txt")).write_text(text, encoding="utf-8")
        print(f"{group}: {len(found)} files, {time.monotonic() - began:.1f} s", flush=True)


def compare(before: Path, after: Path) -> int:
    """Print the files that differ or that are in one folder alone; return the exit code."""
    a, b = ({f.relative_to(root): f.read_bytes() for f in root.rglob("*") if f.is_file()} for root in (before, after))
    for name in sorted(a.keys() | b.keys()):
        if a.get(name) != b.get(name):
            print(name if name in a and name in b else f"{name} (only in {before if name in a else after})")
    return int(a != b)


def main() -> int:
    """Write the goldens, or compare those of two folders."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.goldens", description="Pin what must not change.")
    parser.add_argument("folder", type=Path, nargs="?", help="a new folder, where to write")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("A", "B"), help="print the files that differ")
    arguments = parser.parse_args()
    if arguments.compare is not None:
        return compare(*arguments.compare)
    if arguments.folder is None or arguments.folder.exists():
        parser.error("name a folder that is not there yet, or two to compare")
    if any(os.environ.get(name) != value for name, value in FIXED.items()):
        os.execve(sys.executable, sys.orig_argv, os.environ | FIXED)  # too late for NumPy and hashes in this process
    write(arguments.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
