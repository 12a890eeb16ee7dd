"""The notebooks of examples/ run from beginning to end, each in a kernel of its own, and say what they should."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
SAYS = {
    "identify_panda.ipynb": "Validation: ok",
    "live.ipynb": r"[1-9]\d* parameters have a value",
    "calibrate.ipynb": "Calibration: ok",
}


def test_all_are_run() -> None:
    assert {page.name for page in NOTEBOOKS.glob("*.ipynb")} == set(SAYS)


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.parametrize("name", SAYS)
def test_a_notebook(name: str, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THETAD_DATA", str(data_dir))
    book = nbformat.read(NOTEBOOKS / name, 4)
    NotebookClient(book, timeout=600, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    shown = [str(output.get("data", output)) for output in outputs]
    assert any(re.search(SAYS[name], text) for text in shown), shown
