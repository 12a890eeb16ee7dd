"""Comparison of the PLC's declarations with `layout`; a difference is an error that names the field."""

import ctypes
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from drivers.ads import layout
from drivers.ads._errors import AdsError, AdsSymbolError, LayoutMismatchError
from drivers.ads.link.data_types import BIG_TYPE, DataType, Symbol, array_of, shape_of
from drivers.ads.link.link import VALUE_BY_HANDLE, Link
from drivers.ads.link.symbols import ABSENT, SymbolTable
from drivers.ads.structured_text import COMMAND

_REMEDY = f"generate the PLC's types again ({COMMAND}), or use the thetad that they are of"
_MAX = {"nAxes": 64, "nBlockSamples": 1000, "nBlocks": 10_000, "nSetpoints": 10_000}
#: IEC type -> other names of the same bytes.
_SAME = {"UDINT": "DWORD", "ULINT": "LWORD"}


@dataclass(frozen=True)
class Matched:
    """Variables found in the PLC, and how they were compared."""

    sizes: layout.Sizes
    symbols: dict[str, Symbol]  # by the names of `layout.VARIABLES`
    lower: dict[str, int]  # lower bounds of the arrays `aRing` and `aSetpoints`
    compared: str  # "data types", "members" (symbol by symbol), or "sizes" only


def match(link: Link, variables: str) -> Matched:
    """Look up the variables of the list `variables` and compare them with the layout.

    Raises `AdsSymbolError` if one is missing; `LayoutMismatchError`, which names structure and field, if one is
    declared otherwise; `AdsError` if the server did not answer.
    """
    table = SymbolTable(link)
    symbols = {name: _find(table, variables, name) for name in layout.VARIABLES}
    lower = {name: _lower(table, symbols[name], variables, name) for name in (layout.RING, layout.SETPOINTS)}
    sizes, invalid_reason = _sizes(link, symbols[layout.INFO])
    compared = _compare_types(table, symbols, sizes) or _compare_members(table, variables, symbols, sizes, lower)
    if sizes is None:
        raise LayoutMismatchError(
            f"{variables}.{layout.INFO}: {invalid_reason}; is FB_Theta called in each cycle? Otherwise {_REMEDY}"
        )
    _compare_sizes(variables, symbols, sizes)
    return Matched(sizes, symbols, lower, compared)


def _find(table: SymbolTable, variables: str, name: str) -> Symbol:
    try:
        return table.find(f"{variables}.{name}")
    except AdsSymbolError as error:
        raise AdsSymbolError(f"{error}{_hint(table, name)}", error.code) from error


def _hint(table: SymbolTable, name: str) -> str:
    """Return other places where the variable was found, for the message."""
    try:
        known = table.all()
    except AdsError:
        return ""
    elsewhere = [symbol.name for key, symbol in known.items() if key.endswith(f".{name.casefold()}")]
    if elsewhere:
        return f"; there is {', '.join(elsewhere[:3])}: set variables = {elsewhere[0].rpartition('.')[0]!r}"
    return (
        f"; none of the {len(known)} symbols is called {name}: put deploy/twincat into the PLC project, and see that "
        "port is that of its runtime"
    )


def _sizes(link: Link, info: Symbol) -> tuple[layout.Sizes | None, str]:
    """Return the constants from the values in `stInfo`, or None and the reason."""
    least, most = (ctypes.sizeof(layout.structure("ST_ThetaInfo", layout.Sizes(axes))) for axes in (1, _MAX["nAxes"]))
    if not least <= info.size < most + 8:
        return None, f"it has {info.size} bytes, {least} to {most} are expected"
    handle = link.handle(info.name)
    try:
        raw = bytes(link.read(VALUE_BY_HANDLE, handle, info.size, info.name))
    finally:
        link.release(handle)
    found = layout.structure("ST_ThetaInfo", layout.Sizes(1)).from_buffer_copy(raw[:least])
    if found.nVersion != layout.VERSION:
        return None, f"nVersion is {found.nVersion}, {layout.VERSION} is expected"
    for name, most in _MAX.items():
        if not 1 <= getattr(found, name) <= most:
            return None, f"{name} = {getattr(found, name)} is not within 1 to {most}"
    return layout.Sizes(found.nAxes, found.nBlockSamples, found.nBlocks, found.nSetpoints), ""


def _lower(table: SymbolTable, symbol: Symbol, variables: str, name: str) -> int:
    """Return the lower bound of an array variable, by its type or by trial."""
    array = array_of(symbol.type)
    if array is not None and array[0]:
        return array[0][0][0]
    kind = table.type(symbol.type) if symbol.type else None
    if kind is not None and kind.bounds:
        return kind.bounds[0][0]
    for bound in (0, 1):
        try:
            table.find(f"{variables}.{name}[{bound}]")
        except AdsSymbolError:
            continue
        return bound
    return 0


# ---------------------------------------------------------------- by data types


def _compare_types(table: SymbolTable, symbols: dict[str, Symbol], sizes: layout.Sizes | None) -> str:
    for name, (kind, lengths) in layout.VARIABLES.items():
        declared = symbols[name].type
        array = array_of(declared)
        found = table.type(array[1] if lengths and array is not None else declared) if declared else None
        if found is not None and found.bounds and lengths:
            found = table.type(array_of(found.type)[1] if array_of(found.type) else found.type)  # type: ignore[index]
        if found is None or not found.members:
            return ""
        _compare_structure(table, kind, found, sizes)
    return "data types"


def _compare_structure(table: SymbolTable, name: str, found: DataType, sizes: layout.Sizes | None) -> None:
    """Compare the members; without `sizes`, only those that are no arrays."""
    members = {member.name.casefold(): member for member in found.members}
    expected = [field for field in layout.STRUCTURES[name] if sizes is not None or not field.lengths]
    places = {field.name: (offset, size) for field, offset, size in layout.fields(name, sizes or layout.Sizes(1))}
    for field in expected:
        member = members.get(field.name.casefold())
        if member is None:
            raise _differs(f"{name}.{field.name}", "it is not there")
        if field.kind in layout.STRUCTURES:  # inner structures first, for more specific messages
            inner = table.type(array_of(member.type)[1] if array_of(member.type) else member.type)  # type: ignore[index]
            if inner is not None and inner.members:
                _compare_structure(table, field.kind, inner, sizes)
        offset, size = places[field.name]
        _compare_member(f"{name}.{field.name}", field, member.type, member.size, member.code, size)
        if member.offset != offset:
            raise _differs(f"{name}.{field.name}", f"it lies at byte {member.offset}, byte {offset} is expected")
    known = {field.name.casefold() for field in layout.STRUCTURES[name]}
    for key, member in members.items():
        if key not in known:
            raise _differs(f"{name}.{member.name}", "it is not expected")


def _compare_member(where: str, field: layout.Field, kind: str, size: int, code: int, expected: int) -> None:
    array = array_of(kind)
    while array is not None:  # also an array of arrays
        kind = array[1]
        array = array_of(kind)
    plain = kind.rpartition(".")[2].upper()
    wanted = f"STRING({layout.NAME_CHARS})" if field.kind == "STRING" else field.kind
    if not plain and code == BIG_TYPE:  # the server has sizes only, no types
        same = True
    elif field.kind in layout.IEC:
        same = plain in (field.kind, _SAME.get(field.kind, "")) or _same_bytes(plain, field.kind, code)
    elif field.kind == "STRING":
        same = plain.startswith("STRING") or code == 30
    else:
        same = True
    if not same:
        raise _differs(where, f"it is {kind}, {wanted} is expected")
    if size != expected:
        raise _differs(where, f"it has {size} bytes ({kind or 'type not known'}), {expected} are expected")


def _same_bytes(plain: str, wanted: str, code: int) -> bool:
    """Return whether a type of another name has the same bytes, by its ADS code."""
    if re.match(r"^[A-Z]+$", plain) and plain in ("BYTE", "BOOL", "REAL", "LREAL", "DINT", "UDINT", "LINT", "ULINT"):
        return False
    size = ctypes.sizeof(layout.IEC[wanted])
    given = shape_of("", size, code, lambda _: None)
    return given.kind == "number" and given.format == shape_of(wanted, size, 0, lambda _: None).format


# ---------------------------------------------------------------- by symbols of members


def _compare_members(
    table: SymbolTable, variables: str, symbols: dict[str, Symbol], sizes: layout.Sizes | None, lower: dict[str, int]
) -> str:
    for name, (kind, lengths) in layout.VARIABLES.items():
        base = f"{variables}.{name}" + (f"[{lower[name]}]" if lengths else "")
        if lengths and _element(table, f"{variables}.{name}") is None:
            continue  # no symbols for elements: only their size is compared
        try:
            for owner, field, member, offset, size in _members(table, base, kind, sizes):
                where = f"{owner}.{field.name}"
                _compare_member(where, field, member.type, member.size, member.code, size)
                if member.group == symbols[name].group and member.offset - symbols[name].offset != offset:
                    there = member.offset - symbols[name].offset
                    raise _differs(where, f"it lies at byte {there}, byte {offset} is expected")
        except AdsError as error:
            if error.code not in ABSENT and not isinstance(error, AdsSymbolError):
                raise
            if name == layout.INFO:
                return "sizes"
            raise LayoutMismatchError(f"{error}; {_REMEDY}") from error
    return "members"


def _element(table: SymbolTable, array: str) -> str | None:
    """Return the name of an array's first element; None if the server has no symbols for elements."""
    for bound in (0, 1):
        try:
            return table.find(f"{array}[{bound}]").name
        except AdsSymbolError:
            continue
    return None


def _members(
    table: SymbolTable, base: str, kind: str, sizes: layout.Sizes | None, start: int = 0
) -> Iterator[tuple[str, layout.Field, Symbol, int, int]]:
    """Yield structure, field, symbol, expected offset in the variable and size; of arrays, the first element."""
    for field, offset, size in layout.fields(kind, sizes or layout.Sizes(1)):
        if sizes is None and field.lengths:
            continue
        if field.kind in layout.STRUCTURES:  # inner structures first, for more specific messages
            element = _element(table, f"{base}.{field.name}")
            if element is not None:
                yield from _members(table, element, field.kind, sizes, start + offset)
        yield kind, field, table.find(f"{base}.{field.name}"), start + offset, size


# ---------------------------------------------------------------- by sizes


def _compare_sizes(variables: str, symbols: dict[str, Symbol], sizes: layout.Sizes) -> None:
    """Compare sizes; padding at the end of a variable is accepted."""
    for name, (kind, lengths) in layout.VARIABLES.items():
        count = math.prod(sizes.length(length) for length in lengths)
        expected, found = ctypes.sizeof(layout.structure(kind, sizes)), symbols[name].size
        if found % count or found // count < expected or found // count >= expected + 8:
            raise LayoutMismatchError(
                f"{variables}.{name}: it has {found} bytes, {count} times {expected} are expected by stInfo "
                f"({sizes.axes} axes, {sizes.block_samples} samples a block, {sizes.blocks} blocks, "
                f"{sizes.setpoints} set positions); {_REMEDY}"
            )


def _differs(where: str, what: str) -> LayoutMismatchError:
    return LayoutMismatchError(f"the PLC's {where} differs: {what}; {_REMEDY}")
