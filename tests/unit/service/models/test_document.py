"""The model file: what goes in comes out, and nothing but a whole and consistent file is read."""

import copy
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.files.recordings.recording import Span, read_recording
from drivers.files.robots.file import load_robot
from rt_core.identification.identify import Identification
from rt_core.model.base import base_parameters
from service.models import document as documents
from service.models._schema import SIZE_LIMIT
from service.models.export_code import to_code
from service.models.export_urdf import to_urdf
from service.models.origin import Dataset
from service.operations.identify import identify_recording, signal_settings
from service.reports.validation import report_validation
from tests.lab.command_line import ROOT, simulate, thetad
from tests.lab.exported_c import c_torque
from tests.lab.exported_st import st_torque

SPAN = Span.parse("0:0.7")


@pytest.fixture(scope="module")
def identified(folder: Path) -> tuple[dict[str, Any], Identification]:
    """A model of the real axis, from a short simulation of one with the same form."""
    text = (ROOT / "configs/robots/emps.toml").read_text(encoding="utf-8")
    path = folder / "axis.toml"
    path.write_text(text + "mass = 95.0\ncoulomb = 20.0\nviscous = 200.0\noffset = -3.0\n")
    robot = load_robot(path)
    recording = read_recording(simulate(folder / "axis.mcap", path, seconds=12.0))
    data = Dataset(recording, robot, signal_settings(robot), SPAN)
    result = identify_recording(data)
    return documents.batch_document(result, data), result


@pytest.fixture
def document(identified: tuple[dict[str, Any], Identification]) -> dict[str, Any]:
    return copy.deepcopy(identified[0])


def written(document: dict[str, Any], folder: Path) -> Path:
    documents.write_text(folder / "model.yaml", documents.model_text(document))
    return folder / "model.yaml"


def test_round_trip_to_the_last_bit(
    document: dict[str, Any], identified: tuple[dict[str, Any], Identification], tmp_path: Path
) -> None:
    model = documents.load_model(written(document, tmp_path))
    result = identified[1]
    np.testing.assert_array_equal(model.theta, result.theta)
    np.testing.assert_array_equal(model.covariance, result.uncertainty.covariance)
    assert model.document == document
    assert (model.fit_error, model.origin) == (result.metrics.relative_error, "axis.mcap")
    assert (model.settings.cutoff_hz, model.settings.trim) == (100.0, document["settings"]["trim_s"])
    documents.write_model(model.document, tmp_path / "again.yaml")
    assert (tmp_path / "again.yaml").read_bytes() == (tmp_path / "model.yaml").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.yaml", "model.yaml"]


def test_the_embedded_robot_is_enough(tmp_path: Path, space6_recording: Path) -> None:
    folder, out = tmp_path / "lab", tmp_path / "model.yaml"
    folder.mkdir()
    for name, copy_ in (("space6.toml", "mine.toml"), ("space6.urdf", "space6.urdf")):
        (folder / copy_).write_bytes((ROOT / "configs/robots" / name).read_bytes())
    thetad("identify", space6_recording, "--robot", folder / "mine.toml", "-o", out).ok()
    expected = load_robot(folder / "mine.toml")
    for path in folder.iterdir():
        path.unlink()
    model = documents.load_model(out)
    assert model.robot.sha256 == expected.sha256
    np.testing.assert_array_equal(model.robot.model.geometry, expected.model.geometry)
    assert thetad("models", "export", out, "--format", "urdf").code == 0


def test_hashes_tell_robot_data_and_settings(identified: tuple[dict[str, Any], Identification], folder: Path) -> None:
    document, result = identified
    robot = load_robot(folder / "axis.toml")
    recording = read_recording(folder / "axis.mcap")
    assert (document["data"]["sha256"], document["data"]["span"]) == (recording.sha256, "0:0.7")
    assert document["robot"]["sha256"] == robot.sha256
    changed = documents.batch_document(result, Dataset(recording, robot, signal_settings(robot, trim_s=0.3), SPAN))
    assert changed["settings_sha256"] != document["settings_sha256"]
    assert documents.digest({"a": 1, "b": [2.5]}) == documents.digest({"b": [2.5], "a": 1})


SPRING = {
    "joint": "another", "unit": "N*m/rad", "stiffness_cubic": None, "drive": {}, "online_start": {"reason": "none"},
    "stiffness": {"value": 1e4, "std": None, "status": "doubtful", "reason": "none"},
}  # fmt: skip
Edit = Callable[[dict[str, Any]], object]

EDITS: dict[str, tuple[Edit, str]] = {
    "format": (lambda d: d.update(format="thetad-model/9"), "thetad-model/9"),
    "theta shorter": (lambda d: d["theta"].pop(), "theta or covariance do not have"),
    "theta NaN": (lambda d: d["theta"].__setitem__(0, float("nan")), "theta[0]"),
    "theta text": (lambda d: d["theta"].__setitem__(1, "12,5"), "theta[1]"),
    "theta enormous": (lambda d: d["theta"].__setitem__(1, 10**400), "theta[1]"),
    "theta true": (lambda d: d["theta"].__setitem__(1, True), "theta[1]"),
    "theta gone": (lambda d: d.pop("theta"), "theta: is missing"),
    "covariance ragged": (lambda d: d["covariance"][0].pop(), "theta or covariance do not have"),
    "covariance negative": (lambda d: d["covariance"][0].__setitem__(0, -1.0), "negative variance"),
    "covariance lopsided": (lambda d: d["covariance"][0].__setitem__(1, 1e3), "covariance is not symmetric"),
    "covariance NaN": (lambda d: d["covariance"][1].__setitem__(0, float("nan")), "covariance[1][0]"),
    "robot edited": (lambda d: d["robot"]["source"].update(gravity="ceiling"), "not that of the embedded robot"),
    "robot renamed": (lambda d: d["robot"].update(name="another"), "not that of the embedded robot"),
    "robot misspelt": (lambda d: d["robot"]["source"].update(gravitee="floor"), "gravitee"),
    "settings edited": (lambda d: d["settings"].update(cutoff_hz=20.0), "settings_sha256 does not match"),
    "cut-off negative": (lambda d: d["settings"].update(cutoff_hz=-1.0), "settings.cutoff_hz"),
    "order enormous": (lambda d: d["settings"].update(filter_order=10**9), "settings.filter_order"),
    "parameter renamed": (lambda d: d["parameters"][0].update(name="zz"), "not the base parameters"),
    "parameter value text": (lambda d: d["parameters"][0].update(value="much"), "parameters[0].value"),
    "verdict unknown": (lambda d: d.update(verdict="splendid"), "verdict"),
    "springs of rigid joints": (lambda d: d.update(elastic=[SPRING]), "elastic: it belongs to models of format"),
    "elastic without springs": (lambda d: d.update(format="thetad-model/2"), "elastic: it belongs to models of format"),
    "springs of another": (lambda d: d.update(format="thetad-model/2", elastic=[SPRING]), "its joints are not those"),
    "an arm of before": (lambda d: d.update(format="thetad-elastic-arm/1"), "earlier version"),
    "unknown key": (lambda d: d.update(thetta=[1.0]), "thetta"),
}


@pytest.mark.parametrize("name", EDITS)
def test_damaged_or_edited(document: dict[str, Any], tmp_path: Path, name: str) -> None:
    edit, words = EDITS[name]
    edit(document)
    path = written(document, tmp_path)
    with pytest.raises(documents.ModelFileError) as caught:
        documents.load_model(path)
    message = str(caught.value)
    assert str(path) in message
    assert words in message
    assert len(message) < 500


def test_settings_of_another_robot(document: dict[str, Any], tmp_path: Path) -> None:
    document["settings"]["min_velocity"] = [0.1, 0.1]
    document["settings_sha256"] = documents.digest(document["settings"] | {"method": document["method"]})
    path = written(document, tmp_path)
    for command in (("models", "show"), ("models", "export", "--format", "python")):
        thetad(*command, path).refused(str(path), "min_velocity has 2 values for 1 joints")


def test_not_a_model_file(tmp_path: Path, document: dict[str, Any]) -> None:
    def refused(path: Path, words: str) -> None:
        with pytest.raises(documents.ModelFileError, match=words) as caught:
            documents.load_model(path)
        assert str(path) in str(caught.value)

    refused(tmp_path / "absent.yaml", "no such file")
    refused(tmp_path, "is not a file")
    refused(Path("/dev/zero"), "is not a file")
    path = tmp_path / "x.yaml"
    for content, words in (
        (b"", "not a model file of this version"), (b"- 1\n", "not a model file of this version"),
        (b"format: thetad-model/0\n", "not a model file of this version"), (b"a: [1, 2\n", "not valid YAML"),
        (b"a: !!python/object/apply:os.system [ls]\n", "not valid YAML"), (b"\xff\xfe\x00", "cannot be read as text"),
        (b" " * (SIZE_LIMIT + 1), "too large"),
    ):  # fmt: skip
        path.write_bytes(content)
        refused(path, words)
    whole = written(document, tmp_path).read_bytes()
    for part in (10, len(whole) // 3, len(whole) - 40):
        path.write_bytes(whole[:part])
        refused(path, "x.yaml: ")


def test_yaml_that_would_crash_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text("[" * 500_000)
    with pytest.raises(documents.ModelFileError, match="nested more than"):
        documents.load_model(path)
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{k + 1}: &a{k + 1} [{', '.join([f'*a{k}'] * 10)}]" for k in range(12)]
    path.write_text("\n".join(lines) + "\ntheta: *a12\n")
    with pytest.raises(documents.ModelFileError, match="aliases"):
        documents.load_model(path)


def loads_or_refuses(path: Path) -> documents.ModelFile | None:
    try:
        return documents.load_model(path)
    except documents.ModelFileError as error:
        message = str(error)
    assert str(path) in message
    return None


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates() | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60)
@given(data=st.data())
def test_any_field_replaced_by_anything(
    data: st.DataObject, identified: tuple[dict[str, Any], Identification], tmp_path_factory: pytest.TempPathFactory
) -> None:
    document = copy.deepcopy(identified[0])
    place: Any = document
    key: Any = data.draw(st.sampled_from(list(document)))
    while isinstance(place[key], (dict, list)) and place[key] and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
    place[key] = data.draw(junk)
    path = tmp_path_factory.getbasetemp() / "junk.yaml"
    path.write_text(yaml.safe_dump(document))
    model = loads_or_refuses(path)
    if model is not None:
        assert np.isfinite(model.theta).all()
        assert thetad("models", "show", path, "--json").code == 0


@settings(max_examples=60)
@given(data=st.data())
def test_any_byte_flipped(
    data: st.DataObject, identified: tuple[dict[str, Any], Identification], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "flipped.yaml"
    documents.write_model(identified[0], path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    loads_or_refuses(path)


def test_two_hundred_edits_of_values_and_covariance(
    identified: tuple[dict[str, Any], Identification], tmp_path: Path
) -> None:
    """Each flipped bit and each other digit is refused with one line, unless it reads as the same number."""
    text = documents.model_text(identified[0]).encode()
    first, rng, path = text.index(b"\nranges:"), np.random.default_rng(27), tmp_path / "model.yaml"
    refused: list[str] = []
    for k in range(200):
        data = bytearray(text)
        place = int(rng.integers(first, text.index(b"values_sha256")))
        if k % 2:
            place = int(rng.choice([i for i in range(first, len(text)) if text[i : i + 1].isdigit()]))
            data[place] = int(rng.choice([c for c in b"0123456789" if c != text[place]]))
        else:
            data[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        try:
            assert documents.load_model(path).document == identified[0], (k, place)
        except documents.ModelFileError as error:
            refused.append(str(error))
    assert len(refused) > 190
    assert all(message.startswith(str(path)) and "\n" not in message for message in refused)


def test_a_use_outside_the_identified_ranges_is_said(
    document: dict[str, Any], identified: tuple[dict[str, Any], Identification], tmp_path: Path, folder: Path
) -> None:
    rows, seen = identified[1].rows, document["ranges"]
    assert (len(seen["speed"]), seen["lower_c"]) == (1, None)
    assert 0.9 < np.mean(np.abs(rows.dq[rows.use]) <= seen["speed"][0]) < 1.0
    recording = read_recording(folder / "axis.mcap")
    assert report_validation(documents.load_model(written(document, tmp_path)), recording).notes == ()
    document["ranges"] |= {"speed": [seen["speed"][0] / 2.0], "load": [seen["load"][0] / 3.0]}
    model = documents.load_model(written(document, tmp_path))
    said = thetad("validate", model.path, folder / "axis.mcap").out
    for words in (
        r"joint \S+ moves 2\.\d x faster than where its friction was identified",
        r"joint \S+ carries 3\.\d x the load",
    ):
        assert re.search(words, said)
    assert f"identified up to {model.ranges.speed[0]:.3g} m/s" in to_urdf(model)[0]
    names: dict[str, Any] = {}
    exec(to_code(model, "python"), names)
    with pytest.warns(UserWarning, match="joint 1 is faster than"):
        names["torque"]([0.0], [1.3 * model.ranges.speed[0]], [0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        names["torque"]([0.0], [1.1 * model.ranges.speed[0]], [0.0])
    fast = np.array([[1.05], [1.1], [1.3]]) * model.ranges.speed[0]
    for language, run in (("c", c_torque), ("st", st_torque)):
        assert run(to_code(model, language), np.zeros((3, 1)), fast, np.zeros((3, 1)))[1] == [0, 0, 1]
    del document["ranges"]  # a file of an earlier version
    assert documents.load_model(written(document, tmp_path)).ranges is None


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    for umask, mode in ((0o022, 0o644), (0o077, 0o600)):
        before = os.umask(umask)
        try:
            documents.write_text(tmp_path / "file", "new")
        finally:
            os.umask(before)
        assert (tmp_path / "file").stat().st_mode & 0o777 == mode
    for target in (tmp_path / "file" / "below", tmp_path):
        with pytest.raises(OSError, match="cannot be written") as caught:
            documents.write_text(target, "x")
        assert caught.value.filename == str(target)
    with pytest.raises(UnicodeEncodeError):
        documents.write_text(tmp_path / "file", "\ud800")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "new"


def test_an_online_estimate_keeps_the_constants_it_went_on_with(tmp_path: Path) -> None:
    robot = load_robot("space6_stribeck")
    base = base_parameters(robot.model)
    constants = np.where(base.layout.shape[:, 0] > 0.0, 0.07, 0.0)
    p, settings, source = len(base), signal_settings(robot), {"arm": "axis", "t_ns": 7, "frames": 5}

    def document(first: str) -> dict[str, Any]:
        found = {"theta": np.ones(p), "std": np.full(p, 0.1), "covariance": np.eye(p), "meta": {"constants": constants}}
        found["status"] = (first, *("estimated",) * (p - 1))
        return documents.online_document(robot, settings, found, source)

    found = documents.load_model(written(document("estimated"), tmp_path))
    assert (found.document["verdict"], found.fit_error, found.origin) == ("ok", None, "axis")
    np.testing.assert_array_equal(found.robot.model.dynamics.stribeck_velocity, np.full(6, 0.07))
    np.testing.assert_array_equal(found.base.layout.shape[:, 0], constants)
    weak = document("unestimated")
    assert (weak["verdict"], weak["parameters"][0]["value"]) == ("weak_excitation", None)
    assert weak["reasons"] == [f"1 of {p} parameters are not estimated"]
    assert document("invalid")["verdict"] == "not_explained"
    assert document("doubted")["verdict"] == "doubtful"
