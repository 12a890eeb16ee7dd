"""A short log in all formats, its mappings, and a robot, for tests of the import."""

from pathlib import Path

import numpy as np

from drivers.files.importing._mapping import Mapping, parse_mapping
from drivers.files.recordings.recording import Recording
from tests.lab.files import FILES

N = 400
T = np.arange(N) * 1e-3 * 5.0
Q = np.stack([0.8 * np.sin(3.0 * T), 0.5 * np.cos(2.0 * T)], axis=1)
DQ = np.stack([2.4 * np.cos(3.0 * T), -1.0 * np.sin(2.0 * T)], axis=1)
TAU = np.stack([10.0 * np.sin(T), 5.0 + np.cos(7.0 * T)], axis=1)

NPZ = (FILES / "npz_mapping.toml").read_text(encoding="utf-8")

NPZ_NO_DQ = NPZ.replace('[dq]\ncolumns = "dq"\nunit = "rad/s"\n', "")

CSV = (FILES / "csv_mapping.toml").read_text(encoding="utf-8")

ROBOT = (FILES / "two_joints.toml").read_text(encoding="utf-8")


def mapping(text: str, *changes: tuple[str, str]) -> Mapping:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_mapping(text.encode())


def npz(folder: Path, **changes: object) -> Path:
    arrays = {"t": T, "q": Q, "dq": DQ, "tau": TAU} | changes
    np.savez(folder / "log.npz", **{k: v for k, v in arrays.items() if v is not None})  # type: ignore[arg-type]
    return folder / "log.npz"


def csv_text(separator: str = ",", decimal: str = ".", header: bool = True, rows: int = N) -> str:
    table = np.column_stack([T, Q, TAU])[:rows]
    lines = [separator.join(["time", "q_1", "q_2", "tau_1", "tau_2"])] if header else []
    lines += [separator.join(repr(float(v)).replace(".", decimal) for v in row) for row in table]
    return "\n".join(lines) + "\n"


def same(recording: Recording) -> None:
    np.testing.assert_allclose(recording.t, T, atol=1e-9)
    np.testing.assert_array_equal(recording.channels["q"], Q)
    np.testing.assert_array_equal(recording.channels["tau"], TAU)


def numbered(text: str) -> str:
    return (
        text.replace('"time"', "0").replace('"q_{joint}"', "[1, 2]").replace('["tau_1", "tau_2"]', "[3, 4]")
    )  # fmt: skip
