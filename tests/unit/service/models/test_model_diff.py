"""`thetad models diff` against the figures in the files, and which recordings a model was fitted to."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.stats import norm

from drivers.files.recordings.join import join_recordings
from drivers.files.recordings.recording import Recording, RecordingMeta, Span
from drivers.files.robots.file import load_robot
from rt_core.model.base import base_parameters
from service.models.diff import SPEEDS, compare_models
from service.models.document import load_model, online_document, write_model
from service.models.origin import frame_fingerprints, origin_of, share_seen
from service.operations.identify import signal_settings
from tests.lab.command_line import mounted, thetad
from tests.lab.recordings.fixtures import identified


@pytest.fixture(scope="module")
def other_model(work: Path, space6_recording: Path) -> Path:
    """Model of the last 40 % of the recording."""
    return identified(work / "space6_other.yaml", space6_recording, "space6", "--span", "0.6:1")


def content(path: Path) -> dict[str, Any]:
    found = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    assert isinstance(found, dict)
    return found


def changed(path: Path, out: Path, changes: dict[str, float | None], std: float | None = None) -> Path:
    """Copy a model file with other values of some parameters, and their standard deviation."""
    document = content(path)
    for k, row in enumerate(document["parameters"]):
        if row["name"] in changes:
            value = changes[row["name"]]
            row["value"] = value
            document["theta"][k] = 0.0 if value is None else value
            row["std"] = row["std"] if std is None else std
    write_model(document, out)
    return out


def test_differences_are_in_standard_deviations(space6_model: Path, other_model: Path) -> None:
    a, b = content(space6_model), content(other_model)
    found = thetad("models", "diff", space6_model, other_model, "--z", "1.5", "--json").json
    assert [row["name"] for row in found["parameters"]] == [row["name"] for row in a["parameters"]]
    differing = 0
    for p, q, row in zip(a["parameters"], b["parameters"], found["parameters"], strict=True):
        assert row["values"] == [p["value"], q["value"]]
        z = (q["value"] - p["value"]) / np.sqrt(p["std"] ** 2 + q["std"] ** 2)
        assert row["z"] == pytest.approx(z, rel=1e-12)
        assert row["differs"] == (abs(z) > 1.5)
        differing += row["differs"]
    assert found["differing"] == differing
    assert found["compared"] == len(a["parameters"])
    assert found["by_chance"] == pytest.approx(len(a["parameters"]) * 2.0 * norm.sf(1.5))
    errors = [model["relative_error"] for model in found["models"]]
    assert errors == [document["metrics"]["relative_error"] for document in (a, b)]
    # Both are of one arm: noise alone puts 0.16 of 58 beyond three standard deviations.
    assert sum(abs(row["z"]) > 3.0 for row in found["parameters"]) <= 3


def test_friction_is_that_of_a_joint_that_moves_alone(space6_model: Path, other_model: Path) -> None:
    """Coulomb and viscous friction by hand, with the covariance of the two."""
    document, model = content(space6_model), load_model(space6_model)
    names = [row["name"] for row in document["parameters"]]
    P = np.array(document["covariance"])
    friction = compare_models(model, load_model(other_model)).friction
    assert len(friction) == 6 * 2 * len(SPEEDS)
    for row in friction:
        j = int(row.joint.removeprefix("joint_"))
        v, c = names.index(f"fv{j}"), names.index(f"fc{j}")
        gradient = np.array([row.speed, np.sign(row.speed)])
        torque = gradient @ np.array([document["theta"][v], document["theta"][c]])
        assert row.torque.values[0] == pytest.approx(torque, rel=1e-9)
        variance = gradient @ P[np.ix_([v, c], [v, c])] @ gradient
        assert row.torque.stds[0] == pytest.approx(math.sqrt(variance), rel=1e-9)
        greatest = model.robot.model.joints[j - 1].velocity
        assert abs(row.speed) / greatest in [pytest.approx(part) for part in SPEEDS]


def test_what_differs_is_shown_and_nothing_else(space6_model: Path, tmp_path: Path) -> None:
    same = thetad("models", "diff", space6_model, space6_model).ok()
    assert same.out.startswith("space6: 0 of 58 parameters differ by more than 2 standard deviations")
    assert "parameter  " not in same.out
    row = next(row for row in content(space6_model)["parameters"] if row["name"] == "fc3")
    moved = changed(space6_model, tmp_path / "moved.yaml", {"fc3": row["value"] + 10.0 * row["std"]})
    out = thetad("models", "diff", space6_model, moved).out
    shown = re.findall(r"^(\S+) .* N\*m +([+-][\d.]+)$", out.partition("friction of")[0], re.M)
    assert shown == [("fc3", f"{10.0 / math.sqrt(2.0):+.1f}")]
    joints = dict(re.findall(r"^(joint_\d) .* N\*m +([+-][\d.]+)$", out, re.M))
    assert {name for name, z in joints.items() if float(z) != 0.0} == {"joint_3"}
    assert thetad("models", "diff", space6_model, moved, "--z", "8").out.startswith("space6: 0 of 58")


def test_what_only_one_model_knows_is_named(space6_model: Path, tmp_path: Path) -> None:
    unknown = changed(space6_model, tmp_path / "unknown.yaml", {"fc2": None, "mx6": None})
    found = thetad("models", "diff", space6_model, unknown)
    assert "known to one of them: fc2 (only A), mx6 (only A)" in found.out
    rows = thetad("models", "diff", unknown, space6_model, "--json").json["friction"]
    assert {row["joint"]: row["z"] for row in rows}.items() >= {"joint_2": None, "joint_1": 0.0}.items()


def test_velocity_constants_are_compared_by_their_logarithms(stribeck_model: Path, tmp_path: Path) -> None:
    document = content(stribeck_model)
    known = [row for row in document["constants"] if row["value"] is not None]
    assert known
    for row in known:
        row["value"], row["lower"], row["upper"] = (2.0 * row[key] for key in ("value", "lower", "upper"))
    write_model(document, tmp_path / "twice.yaml")
    done = thetad("models", "diff", stribeck_model, tmp_path / "twice.yaml", "--json")
    found = {row["name"]: row["z"] for row in done.json["constants"]}
    for row in known:
        spread = math.log(row["upper"] / row["lower"]) / (2.0 * norm.ppf(0.975))
        assert found[row["name"]] == pytest.approx(math.log(2.0) / (math.sqrt(2.0) * spread), rel=1e-5)


def test_models_of_other_robots_are_refused(space6_model: Path, arm7_model: Path, tmp_path: Path) -> None:
    words = f"{space6_model} is a model of space6, {arm7_model} one of arm7"
    thetad("models", "diff", space6_model, arm7_model).refused(words, "only models of one robot")
    robot = load_robot(mounted("space6", "+x", tmp_path))
    p = len(base_parameters(robot.model))
    found = {"theta": np.ones(p), "std": np.full(p, 0.1), "covariance": np.eye(p), "status": ("estimated",) * p}
    write_model(online_document(robot, signal_settings(robot), found, {"arm": "w"}), tmp_path / "w.yaml")
    thetad("models", "diff", tmp_path / "w.yaml", space6_model).refused("other parameters", "gravity")


def recording(seed: int, folder: str) -> Recording:
    """20 s of two joints, on a clock of its own."""
    t = np.arange(2000) / 100.0
    q = np.random.default_rng(seed).normal(size=(t.size, 2))
    t_ns = 10**15 * seed + np.rint(t * 1e9).astype(np.int64)
    meta = RecordingMeta("arm", ("one", "two"), ("rad", "rad"), 100.0)
    return Recording(t, t_ns, np.arange(t.size), {"q": q, "tau": q}, meta, path=Path(f"/data/{folder}/{seed}.mcap"))


A, B, C = recording(1, "x"), recording(2, "y"), recording(3, "x")
ROWS = np.arange(1.0, 19.0, 0.1)  # what trimming leaves of each


def of_both() -> dict[str, object]:
    joined = join_recordings([A, B])
    return origin_of(joined, np.concatenate([begin + ROWS for begin, _ in joined.spans]))


def test_each_of_several_recordings_is_named_on_its_own_clock() -> None:
    data = of_both()
    assert data["recording"] == "1.mcap + 2.mcap"
    for source, r in zip(data["sources"], (A, B), strict=True):
        own = origin_of(r, ROWS)
        for name in ("first_s", "last_s"):
            assert source.pop(name) == pytest.approx(own.pop(name))
        marks = zip(r.t_ns, frame_fingerprints(r, 0.0, 20.0, r.samples), strict=True)
        assert set(source.pop("frames")) <= {f"{t}:{mark.partition(':')[2]}" for t, mark in marks}
        assert own.pop("frames")
        assert source == own
    assert "frames" not in data


@pytest.mark.parametrize("seen", [A, B], ids=["first", "second"])
def test_rows_of_any_of_them_are_known(seen: Recording) -> None:
    data = of_both()
    assert share_seen(data, seen, ROWS) == 1.0
    assert share_seen(data, seen, np.array([18.95, 19.0, 19.05])) == 0.0
    assert share_seen(data, seen, np.array([18.95, 19.0, 19.05]), guard_s=0.12) == pytest.approx(2.0 / 3.0)
    part = seen.span(Span.parse("0.5:1"))  # another file with the same frames
    assert part.sha256 != seen.sha256
    assert share_seen(data, part, ROWS[ROWS > 10.5]) == pytest.approx(0.47, abs=0.02)
    assert share_seen(data, C, ROWS) == 0.0


def test_a_file_of_one_recording_is_read_as_ever() -> None:
    data = origin_of(A, ROWS)
    assert set(data) == {"recording", "sha256", "first_s", "last_s", "frames"}
    assert [share_seen(data, recording, ROWS) for recording in (A, B, replace(A, path=None))] == [1.0, 0.0, 1.0]
    assert share_seen({"arm": "axis", "t_ns": 7}, A, ROWS) == 0.0  # of an online estimate
