"""Lookup of symbols and data types, by the services that the server has."""

import struct
from collections.abc import Iterator

from drivers.ads._errors import BAD_INDEX, NOT_THERE, SYMBOL_NOT_FOUND, AdsError, AdsReplyError, AdsSymbolError
from drivers.ads.link.data_types import DataType, Symbol, parse_symbol, parse_type
from drivers.ads.link.link import Link, encode_name

_INFO_BY_NAME, _INFO_BY_NAME_EX = 0xF007, 0xF009
_SYMBOL_UPLOAD, _UPLOAD_INFO, _TYPE_UPLOAD, _UPLOAD_INFO_2, _TYPE_BY_NAME = 0xF00B, 0xF00C, 0xF00E, 0xF00F, 0xF011
_ENTRY_BYTES = 0xFFFF
_MAX_UPLOAD = 256 * 1024 * 1024
#: Codes for a symbol, member or element that does not exist.
ABSENT = frozenset({SYMBOL_NOT_FOUND, BAD_INDEX, 1798, 1803, 1804})


class SymbolTable:
    """Symbols and data types of the server of an open link; results are cached."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._types: dict[str, DataType | None] = {}
        self._by_name = True
        self._uploaded_types = False
        self._all: dict[str, Symbol] | None = None

    # ------------------------------------------------------------ symbols

    def find(self, name: str) -> Symbol:
        """Find a symbol by its name, in any case.

        Raises `AdsSymbolError`: it does not exist; `AdsError`: the server has no service for symbols.
        """
        try:
            raw = self._link.read_write(
                _INFO_BY_NAME_EX, 0, _ENTRY_BYTES, encode_name(name), f"symbol {name}", exact=False
            )
            return parse_symbol(memoryview(raw).cast("B"))[0]
        except AdsReplyError:
            pass
        except AdsError as error:
            if error.code in ABSENT:
                raise AdsSymbolError(str(error), error.code) from error
            if error.code not in NOT_THERE:
                raise
        return self._find_otherwise(name)

    def _find_otherwise(self, name: str) -> Symbol:
        try:
            found = self.all().get(name.casefold())
        except AdsError as error:
            if error.code not in NOT_THERE:
                raise
        else:
            if found is not None:
                return found
        try:
            raw = self._link.read_write(_INFO_BY_NAME, 0, 12, encode_name(name), f"symbol {name}")
        except AdsError as error:
            if error.code in ABSENT:
                raise AdsSymbolError(str(error), error.code) from error
            raise
        return Symbol(name, *struct.unpack("<3I", bytes(raw)))

    def all(self) -> dict[str, Symbol]:
        """Return every symbol by its name in lower case, in the order of the server."""
        if self._all is None:
            self._all = {symbol.name.casefold(): symbol for symbol in self._upload_symbols()}
        return self._all

    def _upload_symbols(self) -> Iterator[Symbol]:
        count, size, _, _ = self._upload_info()
        raw = memoryview(self._link.read(_SYMBOL_UPLOAD, 0, max(size, 1), "symbol upload", exact=False)).cast("B")
        at = 0
        for _ in range(count):
            symbol, length = parse_symbol(raw[at:])
            yield symbol
            at += length

    def _upload_info(self) -> tuple[int, int, int, int]:
        """Return number and size in bytes of the symbols, and of the data types."""
        try:
            raw = self._link.read(_UPLOAD_INFO_2, 0, 24, "upload information", exact=False)
            found = struct.unpack_from("<4I", bytes(raw))
        except AdsError as error:
            if error.code not in NOT_THERE:
                raise
            raw = self._link.read(_UPLOAD_INFO, 0, 8, "upload information")
            found = (*struct.unpack("<2I", bytes(raw)), 0, 0)
        if max(found[1], found[3]) > _MAX_UPLOAD:
            raise AdsReplyError(f"upload information: {found} is impossible")
        return found[0], found[1], found[2], found[3]

    # ------------------------------------------------------------ data types

    def type(self, name: str) -> DataType | None:
        """Return a data type by its name, in any case, with or without its namespace; None if it does not exist."""
        key = name.casefold()
        if key not in self._types:
            self._types[key] = self._ask_type(name) or self._uploaded_type(key)
        return self._types[key]

    def _ask_type(self, name: str) -> DataType | None:
        if not self._by_name:
            return None
        try:
            raw = self._link.read_write(_TYPE_BY_NAME, 0, _ENTRY_BYTES, encode_name(name), f"type {name}", exact=False)
            return parse_type(memoryview(raw).cast("B"))[0]
        except AdsReplyError:
            return None
        except AdsError as error:
            if error.code in ABSENT:
                return None
            if error.code not in NOT_THERE:
                raise
            self._by_name = False
            return None

    def _uploaded_type(self, key: str) -> DataType | None:
        if not self._uploaded_types:
            self._uploaded_types = True
            for kind in self._upload_types():
                self._types.setdefault(kind.name.casefold(), kind)
        found = self._types.get(key)
        if found is None:  # Namespace.ST_X for ST_X, or the other way round
            short = key.rpartition(".")[2]
            fitting = [kind for name, kind in self._types.items() if kind and name.rpartition(".")[2] == short]
            found = fitting[0] if len(fitting) == 1 else None
        return found

    def _upload_types(self) -> list[DataType]:
        try:
            _, _, count, size = self._upload_info()
            if not count:
                return []
            raw = memoryview(self._link.read(_TYPE_UPLOAD, 0, max(size, 1), "data type upload", exact=False)).cast("B")
            found, at = [], 0
            for _ in range(count):
                kind, length = parse_type(raw[at:])
                found.append(kind)
                at += length
        except AdsReplyError:
            return []
        except AdsError as error:
            if error.code not in NOT_THERE:
                raise
            return []
        return found
