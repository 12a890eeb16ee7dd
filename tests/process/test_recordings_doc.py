"""The worked examples of docs/recordings.md do what the page says."""

import re
from pathlib import Path

import numpy as np
import pytest

from drivers.files.importing._mapping import load_mapping, parse_mapping
from drivers.files.importing.importer import load_data
from drivers.files.recordings.recording import read_recording
from tests.lab.console import check_page, surroundings

FILE = Path(__file__).parents[2] / "docs/recordings.md"
PAGE = FILE.read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_worked_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pick.csv").write_text(blocks("csv")[0])
    Path("pick.toml").write_text(blocks("toml")[0])
    check_page(FILE, tmp_path, surroundings())
    recording = read_recording("pick.mcap")
    np.testing.assert_allclose(recording.channels["q"][0], [0.0, np.pi / 4])
    np.testing.assert_allclose(recording.channels["tau"][0], [100 * 0.11 * 1.204, 80 * 0.09 * 0.300])
    exec(blocks("python")[0])


def test_second_example(tmp_path: Path) -> None:
    text = blocks("toml")[1].replace('robot = "bench.toml"', "") + "[transmission]\ngear_ratio = [10.0, 20.0]\n"
    parse_mapping(text.encode())
    turns = np.linspace(0.0, 1.0, 50)[:, None] * [1.0, 2.0]
    np.savez(tmp_path / "bench.npz", fs=100.0, enc=turns, u=np.sin(turns))
    (tmp_path / "bench.toml").write_text(text)
    recording = load_data(tmp_path / "bench.npz", load_mapping(tmp_path / "bench.toml"))[0]
    np.testing.assert_allclose(recording.channels["q"], turns * 2 * np.pi / [10.0, 20.0], atol=1e-12)
    np.testing.assert_allclose(recording.channels["tau"], 0.12 * np.sin(turns) * [10.0, 20.0], atol=1e-12)
