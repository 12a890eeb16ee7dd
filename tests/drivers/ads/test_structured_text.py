"""The PLC's files are those that the layout makes, and the function block knows its fields."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drivers.ads import layout
from drivers.ads.layout import STRUCTURES, VARIABLES, VERSION, Sizes
from drivers.ads.structured_text import DEFAULT, FOLDER, files, main

BLOCK = (FOLDER / "FB_Theta.st").read_text(encoding="ascii")


@pytest.mark.parametrize("name", list(files(DEFAULT)))
def test_files_are_up_to_date(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="ascii")
    assert text == files(DEFAULT)[name], "python -m drivers.ads.structured_text writes it again"


def test_types_say_what_the_layout_says() -> None:
    text = files(DEFAULT)["ST_Theta.st"]
    for name, fields in STRUCTURES.items():
        body = re.search(rf"TYPE {name} :\nSTRUCT\n(.*?)END_STRUCT", text, re.DOTALL)
        assert body is not None
        declared = re.findall(r"^\s*(\w+) : (.+?); //", body[1], re.MULTILINE)
        assert [field for field, _ in declared] == [field.name for field in fields]
        for (_, kind), field in zip(declared, fields, strict=True):
            assert kind.endswith("STRING(31)" if field.kind == "STRING" else field.kind)
            assert kind.count("..") == len(field.lengths)


def test_other_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--axes", "6", "--block-samples", "50", "--to", str(tmp_path)])
    text = (tmp_path / "GVL_ThetaSize.st").read_text()
    assert "AXES : UDINT := 6;" in text
    assert "BLOCK_SAMPLES : UDINT := 50;" in text
    assert f"VERSION : UDINT := {VERSION};" in text
    assert (tmp_path / "ST_Theta.st").read_text() == files(Sizes(9))["ST_Theta.st"]
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_function_block_uses_fields_that_there_are() -> None:
    used = re.findall(r"GVL_Theta\.(\w+)(?:\[[^\]]*\])?(?:\.(\w+))?", BLOCK)
    assert used
    for variable, field in used:
        assert variable in VARIABLES
        if field:
            assert field in {f.name for f in STRUCTURES[VARIABLES[variable][0]]}, f"{variable}.{field}"


def test_function_block_fills_every_field_that_it_states() -> None:
    for variable in (layout.INFO, layout.HEAD):
        for field in STRUCTURES[VARIABLES[variable][0]]:
            assert re.search(rf"GVL_Theta\.{variable}\.{field.name}(\[i\])? := ", BLOCK), f"{variable}.{field.name}"


def test_states_are_those_of_the_layout() -> None:
    for name in ("OFF", "ENABLING", "ENABLED", "STOPPING", "FAULT"):
        assert f"{name} : UDINT := {getattr(layout, name)};" in BLOCK
    constants = files(DEFAULT)["GVL_ThetaSize.st"]
    for name in set(re.findall(r"GVL_ThetaSize\.(\w+)", BLOCK)):
        assert re.search(rf"^\s+{name} : UDINT", constants, re.MULTILINE), name


def test_blocks_are_closed() -> None:
    code = re.sub(r"//.*", "", BLOCK)
    for word in ("IF", "FOR", "CASE", "METHOD", "VAR"):
        opened = len(re.findall(rf"(?<![A-Z_]){word}(?![A-Z_])", code))
        opened += len(re.findall(r"\bVAR_INPUT\b|\bVAR_OUTPUT\b", code)) if word == "VAR" else 0
        assert opened == len(re.findall(rf"\bEND_{word}\b", code)), word
