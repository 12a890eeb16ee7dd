"""Variables of the PLC: the layout's list, which an online change may alter, and MAIN with types of all sorts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drivers.ads import layout
from drivers.ads.layout import IEC, NAME_CHARS, STRUCTURES, VARIABLES, Sizes
from sim_backend.errors import SimulationConfigError
from sim_backend.plc import _data_types as kinds
from sim_backend.plc._data_types import ELEMENTARY, DataType, array, elementary, structure
from sim_backend.plc._symbols import Variable

#: Structures that the program also writes when altered.
_ALTERABLE = ("ST_ThetaAxis", "ST_ThetaSample", "ST_ThetaBlock", "ST_ThetaInfo", "ST_ThetaHead")


@dataclass(frozen=True)
class Alteration:
    """Alteration of a field by an online change: added at the end if unknown, removed if `type` is None."""

    structure: str
    field: str
    type: str | None

    def __post_init__(self) -> None:
        if self.structure not in _ALTERABLE:
            raise SimulationConfigError(f"structure {self.structure!r} cannot be altered: {', '.join(_ALTERABLE)} can")
        if self.type is not None and self.type not in ELEMENTARY:
            raise SimulationConfigError(f"type {self.type!r} is not elementary: {', '.join(ELEMENTARY)} are")
        kinds = {field.name: field.kind for field in STRUCTURES[self.structure]}
        if kinds.get(self.field, "UDINT" if self.type else "") not in IEC:
            known = ", ".join(name for name, kind in kinds.items() if kind in IEC)
            raise SimulationConfigError(f"field {self.field!r} of {self.structure} cannot be altered: {known} can")


def layout_types(sizes: Sizes, alterations: Sequence[Alteration] = ()) -> dict[str, DataType]:
    """Return the types of the layout's structures, by name."""
    types: dict[str, DataType] = {}

    def kind_of(field: layout.Field) -> DataType:
        changed = [each for each in alterations if each.structure == name and each.field == field.name and each.type]
        kind = (
            elementary(str(changed[-1].type))
            if changed
            else kinds.string(NAME_CHARS)
            if field.kind == "STRING"
            else types[field.kind]
            if field.kind in types
            else elementary(field.kind)
        )
        lengths = [(0, sizes.length(length)) for length in field.lengths]
        return array(kind, lengths) if lengths else kind

    for name, fields in STRUCTURES.items():
        changes = [each for each in alterations if each.structure == name]
        removed = {each.field for each in changes if each.type is None}
        known = {field.name for field in fields}
        members = [(field.name, kind_of(field), field.text) for field in fields if field.name not in removed]
        members += [
            (each.field, elementary(each.type), "") for each in changes if each.type and each.field not in known
        ]
        types[name] = structure(name, members)
    return types


def declare(prefix: str, sizes: Sizes, alterations: Sequence[Alteration] = ()) -> list[Variable]:
    """Return all variables of the PLC; names of the layout get `prefix`."""
    types = layout_types(sizes, alterations)
    variables = []
    for name, (kind, lengths) in VARIABLES.items():
        dimensions = [(0, sizes.length(length)) for length in lengths]
        variables.append(Variable(f"{prefix}.{name}", array(types[kind], dimensions) if dimensions else types[kind]))
    return variables + _main()


def _main() -> list[Variable]:
    """Return the variables of MAIN, one of each sort."""
    tool = structure(
        "ST_Tool",
        [
            ("sName", kinds.string(15), "what it is called"), ("bClosed", elementary("BOOL"), ""),
            ("fMass", elementary("LREAL"), "[kg]"), ("aCentre", array(elementary("REAL"), [(1, 3)]), "[m]"),
        ],
        "a tool",
    )  # fmt: skip
    station = structure(
        "ST_Station",
        [
            ("nNumber", elementary("INT"), ""), ("stTool", tool, "in the gripper"),
            ("aTools", array(tool, [(0, 3)]), "in the rack"), ("rTool", kinds.reference(tool), "in use"),
        ],
    )  # fmt: skip
    mode = kinds.enumeration("E_Mode", [("Manual", 0), ("Automatic", 1), ("Setup", 10)])
    plain = {
        "nByte": "BYTE", "nInt": "INT", "nWord": "WORD", "nDint": "DINT", "nUdint": "UDINT", "nLint": "LINT",
        "fReal": "REAL", "fLreal": "LREAL",
    }  # fmt: skip
    declared: list[tuple[str, DataType, str]] = [
        ("bSwitch", elementary("BOOL"), "free for the operator"),
        *((name, elementary(kind), "") for name, kind in plain.items()), ("sText", kinds.string(80), ""),
        ("aNumbers", array(elementary("INT"), [(1, 5)]), ""),
        ("aMatrix", array(elementary("LREAL"), [(0, 2), (-1, 3)]), "two rows, columns -1 to 1"), ("eMode", mode, ""),
        ("stStation", station, ""), ("rLreal", kinds.reference(elementary("LREAL")), ""),
        ("rTool", kinds.reference(tool), ""), ("nCycles", elementary("UDINT"), "counts the cycles of the task"),
    ]  # fmt: skip
    return [Variable(f"MAIN.{name}", kind, comment) for name, kind, comment in declared]


#: Variables that the references of MAIN refer to.
REFERENCES = {"MAIN.rLreal": "MAIN.fLreal", "MAIN.rTool": "MAIN.stStation.stTool"}
#: Initial values of MAIN; the others are 0.
INITIAL: dict[str, Any] = {
    "MAIN.nInt": -12, "MAIN.nDint": 100_000, "MAIN.fReal": 0.5, "MAIN.fLreal": 3.25, "MAIN.sText": b"thetad",
    "MAIN.aNumbers": [1, 2, 3, 4, 5], "MAIN.eMode": 1, "MAIN.stStation.nNumber": 7,
    "MAIN.stStation.stTool.sName": b"gripper", "MAIN.stStation.stTool.fMass": 1.5,
    "MAIN.stStation.aTools[1].sName": b"screwdriver",
}  # fmt: skip
