"""The PLC's generated files match the layout; function block and example use existing names."""

import re

import pytest

from drivers.ads import layout
from drivers.ads.layout import STRUCTURES, VARIABLES
from drivers.ads.structured_text import DEFAULT, FOLDER, files

BLOCK = (FOLDER / "FB_Theta.st").read_text(encoding="ascii")
EXAMPLE = (FOLDER / "MAIN.st").read_text(encoding="ascii")
#: Inputs of what the example calls, as Beckhoff's documentation of Tc2_MC2 has them; the axis is an in-out of each.
INPUTS = {
    "MC_Power": {"Enable", "Enable_Positive", "Enable_Negative", "Override", "BufferMode"}, "MC_Reset": {"Execute"},
    "MC_ExtSetPointGenEnable": {"Execute", "Position", "PositionType"}, "MC_ExtSetPointGenDisable": {"Execute"},
    "MC_ExtSetPointGenFeed": {"Position", "Velocity", "Acceleration", "Direction"},
}  # fmt: skip
#: Members of AXIS_REF.Status (ST_AxisStatus), and outputs of blocks, that the example reads.
STATUS = {"Error", "Operational", "IoDataInvalid"}
OUTPUTS = {"MC_Power": {"Status"}, "MC_ExtSetPointGenEnable": {"Enabled"}}


@pytest.mark.parametrize("name", list(files(DEFAULT)))
def test_files_are_up_to_date(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="ascii")
    assert text == files(DEFAULT)[name], "python -m drivers.ads.structured_text writes it again"


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
    inputs, outputs = _section("VAR_INPUT"), _section("VAR_OUTPUT")
    assert set(re.findall(r"^    (\w+) :=", given[1], re.MULTILINE)) <= inputs
    assert set(re.findall(r"fbTheta\.(\w+)", EXAMPLE)) <= inputs | outputs
    assert outputs - {"nState"} <= set(re.findall(r"fbTheta\.(\w+)", EXAMPLE)), "each output has its effect"
