"""The PLC's generated files match the layout; function block and example use existing names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drivers.ads import layout
from drivers.ads.layout import REASONS, STRUCTURES, VARIABLES, VERSION, Sizes
from drivers.ads.structured_text import DEFAULT, FOLDER, files, main

BLOCK = (FOLDER / "FB_Theta.st").read_text(encoding="ascii")
EXAMPLE = (FOLDER / "MAIN.st").read_text(encoding="ascii")
#: Inputs of what the example calls, as Beckhoff's documentation of Tc2_MC2 has them; the axis is an in-out of each.
INPUTS = {
    "MC_Power": {"Enable", "Enable_Positive", "Enable_Negative", "Override", "BufferMode"},
    "MC_Reset": {"Execute"},
    "MC_ExtSetPointGenEnable": {"Execute", "Position", "PositionType"},
    "MC_ExtSetPointGenDisable": {"Execute"},
    "MC_ExtSetPointGenFeed": {"Position", "Velocity", "Acceleration", "Direction"},
}
#: Members of AXIS_REF.Status (ST_AxisStatus), and outputs of blocks, that the example reads.
STATUS = {"Error", "Operational", "IoDataInvalid"}
OUTPUTS = {"MC_Power": {"Status"}, "MC_ExtSetPointGenEnable": {"Enabled"}}


@pytest.mark.parametrize("name", list(files(DEFAULT)))
def test_files_are_up_to_date(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="ascii")
    assert text == files(DEFAULT)[name], "python -m drivers.ads.structured_text writes it again"


def test_types_match_the_layout() -> None:
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


def test_function_block_uses_existing_fields() -> None:
    used = re.findall(r"GVL_Theta\.(\w+)(?:\[[^\]]*\])?(?:\.(\w+))?", BLOCK)
    assert used
    for variable, field in used:
        assert variable in VARIABLES
        if field:
            assert field in {f.name for f in STRUCTURES[VARIABLES[variable][0]]}, f"{variable}.{field}"


def test_function_block_fills_every_field() -> None:
    for variable in (layout.INFO, layout.HEAD):
        for field in STRUCTURES[VARIABLES[variable][0]]:
            assert re.search(rf"GVL_Theta\.{variable}\.{field.name}(\[i\])? := ", BLOCK), f"{variable}.{field.name}"


def test_states_are_those_of_the_layout() -> None:
    for name in ("OFF", "ENABLING", "ENABLED", "STOPPING", "FAULT"):
        assert f"{name} : UDINT := {getattr(layout, name)};" in BLOCK
    constants = files(DEFAULT)["GVL_ThetaSize.st"]
    for name in set(re.findall(r"GVL_ThetaSize\.(\w+)", BLOCK)):
        assert re.search(rf"^\s+{name} : UDINT", constants, re.MULTILINE), name


def _section(name: str) -> set[str]:
    """Names declared in all of a block's sections of this kind, without those of methods."""
    declarations = BLOCK[: BLOCK.index("METHOD PRIVATE")]
    found = re.findall(rf"^{name}\n(.*?)^END_VAR", declarations, re.MULTILINE | re.DOTALL)
    return {variable for text in found for variable in re.findall(r"^    (\w+) :", text, re.MULTILINE)}


def test_example_calls_library_blocks_by_their_inputs() -> None:
    instances = dict(re.findall(r"(\w+) : ARRAY \[[^\]]*\] OF (MC_\w+);", EXAMPLE))
    called = set()
    code = re.sub(r"//.*", "", EXAMPLE)
    for name, arguments in re.findall(r"^\s*(\w+)(?:\[i\])?\(((?:[^()]|\([^()]*\))*)\);", code, re.MULTILINE):
        block = instances.get(name, name)
        if not block.startswith("MC_"):
            continue
        given = set(re.findall(r"(\w+) :=", arguments))
        assert given <= INPUTS[block] | {"Axis"}, block
        assert "Axis" in given
        called.add(block)
    assert called == set(INPUTS)
    for name, output in re.findall(r"(\w+)\[i\]\.(Status|Enabled)\b(?!\.)", code):
        assert output in OUTPUTS[instances[name]], name
    assert set(re.findall(r"aAxis\[i\]\.Status\.(\w+)", code)) == STATUS


def test_example_uses_inputs_and_outputs_of_the_function_block() -> None:
    given = re.search(r"^fbTheta\((.*?)\);", EXAMPLE, re.MULTILINE | re.DOTALL)
    assert given is not None
    inputs, outputs = _section("VAR_INPUT"), _section("VAR_OUTPUT")
    assert set(re.findall(r"^    (\w+) :=", given[1], re.MULTILINE)) <= inputs
    assert set(re.findall(r"fbTheta\.(\w+)", EXAMPLE)) <= inputs | outputs
    assert outputs - {"nState"} <= set(re.findall(r"fbTheta\.(\w+)", EXAMPLE)), "each output has its effect"


def test_every_reason_is_used() -> None:
    assert set(re.findall(r"GVL_ThetaSize\.REASON_(\d)", BLOCK)) == {str(k) for k in REASONS if k}


def test_methods_called_are_those_defined() -> None:
    defined = re.findall(r"^METHOD PRIVATE (\w+)", BLOCK, re.MULTILINE)
    assert len(defined) == len(set(defined))
    code = re.sub(r"//.*", "", BLOCK)
    library = {"MAX", "ABS", "ROL", "ADR", "SIZEOF"}
    called = {name for name in re.findall(r"(?<![.\w])([A-Z]\w*)\(", code) if "_TO_" not in name} - library
    assert called <= set(defined) | {"STRING"}
    assert set(defined) <= called


@pytest.mark.parametrize("code", [BLOCK, EXAMPLE])
def test_blocks_are_closed(code: str) -> None:
    code = re.sub(r"//.*", "", code)
    for word in ("IF", "FOR", "CASE", "METHOD", "VAR"):
        opened = len(re.findall(rf"(?<![A-Z_]){word}(?![A-Z_])", code))
        opened += len(re.findall(r"\bVAR_INPUT\b|\bVAR_OUTPUT\b", code)) if word == "VAR" else 0
        assert opened == len(re.findall(rf"\bEND_{word}\b", code)), word
