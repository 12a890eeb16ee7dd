"""Functions behind `thetad ads`: server information, symbols, values, and a check of an arm."""

import fnmatch
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from drivers.ads import layout
from drivers.ads._errors import AdsError, AdsReplyError, AdsSymbolError
from drivers.ads.config import AdsConfig, Target
from drivers.ads.link.data_types import BIG_TYPE, Shape, Symbol, decode, encode, referenced, shape_of, size_of
from drivers.ads.link.link import STATES, VALUE_BY_HANDLE, Link
from drivers.ads.link.symbols import SymbolTable
from drivers.ads.ring.clock import PlcClock, filetime_to_ns
from drivers.timing import Histogram, now_ns, sleep_until

_MAX = 16 * 1024 * 1024
_ROUND_TRIPS = 200


@contextmanager
def _connected(target: Target) -> Iterator[tuple[Link, int]]:
    link = Link(target)
    state = link.open()[0]
    try:
        yield link, state
    finally:
        link.close()


def device_info(target: Target) -> dict[str, Any]:
    """Return name, version and state of the server, and the addresses of both ends."""
    with _connected(target) as (link, state):
        try:
            name, version = link.device_info()
        except AdsError:  # a server need not have a name
            if link.broken:
                raise
            name, version = "", ""
        return {
            "net_id": target.net_id, "port": target.port, "host": target.address, "local_net_id": link.local_net_id(),
            "name": name, "version": version, "state": STATES.get(state, str(state)),
        }  # fmt: skip


def symbols(target: Target, pattern: str = "") -> list[dict[str, Any]]:
    """List the symbols that match `pattern`, a part of the name or a pattern with `*`."""
    wanted = pattern.casefold()
    with _connected(target) as (link, _):
        found = SymbolTable(link).all().values()
    wild = any(c in wanted for c in "*?[")
    return [
        {"name": s.name, "type": s.type, "size": s.size, "comment": s.comment, "group": s.group, "offset": s.offset}
        for s in found
        if not wanted or (fnmatch.fnmatchcase(s.name.casefold(), wanted) if wild else wanted in s.name.casefold())
    ]


def read_symbol(target: Target, name: str) -> dict[str, Any]:
    """Read a variable: `name`, `type`, `size`, `value`; if not `known`, the value is its bytes in hexadecimal."""
    with _connected(target) as (link, _):
        symbol, shape = _described(link, name)
        return _facts(symbol, shape, _bytes(link, symbol))


def write_symbol(target: Target, name: str, value: Any, finite: bool = True) -> dict[str, Any]:
    """Write a variable, and read it back as `read_symbol` does; `kept` is whether what was written is there.

    Members of a structure that `value` leaves out keep their values; numbers must be `finite`.  Raises
    `AdsSymbolError`: there is no such variable, or the value does not fit its type; nothing is written then.
    """
    with _connected(target) as (link, _):
        symbol, shape = _described(link, name)
        data = bytearray(_bytes(link, symbol))
        encode(shape, value, data, where=symbol.name, finite=finite)
        with _handle(link, symbol.name) as handle:
            link.write(VALUE_BY_HANDLE, handle, data, symbol.name)
        there = _bytes(link, symbol)
        wanted = bytearray(there)  # what else the program has changed meanwhile is its own
        encode(shape, value, wanted, finite=False)
        return _facts(symbol, shape, there) | {"kept": wanted == there}


def check(config: AdsConfig, duration_s: float = 2.0) -> dict[str, Any]:
    """Check that an arm can be read: route, state, layout, ring, rate, clock, round trips.  Nothing is written.

    Returns `state`, `compared` (how the layout was compared), measured `rate_hz` and `nominal_hz`, `drift_ppm` (coarse
    after seconds), `round_trip_us`, `axes`, and further data of the program.  Raises `DriverError`: the first problem,
    and its remedy.
    """
    from drivers.ads._connection import attach, check_running  # here, because it imports the compiled decoder

    link = Link(config.target)
    program = None
    try:
        attached = attach(link, config)
        program, info = attached.program, attached.info
        clock, trips = PlcClock(), Histogram()
        began_ns = now_ns()
        first = head = program.read([])[0]
        due_ns = began_ns
        while due_ns < began_ns + duration_s * 1e9:
            due_ns += round(duration_s * 1e9 / _ROUND_TRIPS)
            sleep_until(due_ns)
            sent_ns = now_ns()
            head = program.read([])[0]
            received_ns = now_ns()
            trips.add(received_ns - sent_ns)
            clock.add(filetime_to_ns(head.time), received_ns)
        passed_s = (head.time - first.time) * 1e-7
        check_running(link, link.state()[0])
        return {
            "net_id": config.net_id, "local_net_id": link.local_net_id(), "state": "run",
            "compared": program.matched.compared, "sum_commands": link.sum_commands, "by_address": program.by_address,
            "axes": list(info.names), "channels": list(attached.decoder.channels),
            "clock": "dc" if attached.dc else "plc", "nominal_hz": 1e9 / info.cycle_ns,
            "rate_hz": (head.samples - first.samples) / passed_s if passed_s > 0.0 else 0.0,
            "drift_ppm": clock.drift_ppm, "block_samples": program.sizes.block_samples,
            "blocks": program.sizes.blocks, "ring_s": program.sizes.blocks * attached.block_ns * 1e-9,
            "heartbeat_ms": info.heartbeat_ms, "axes_state": layout.STATES.get(head.state, str(head.state)),
            "axes_reason": layout.REASONS.get(head.reason, str(head.reason)), "exceeded_cycles": head.exceeded,
            "round_trip_us": {
                "p50": trips.quantile_ns(0.5) * 1e-3,
                "p99": trips.quantile_ns(0.99) * 1e-3,
                "max": trips.highest_ns * 1e-3,
            },
        }  # fmt: skip
    finally:
        if program is not None:
            program.close()
        link.close()


def _described(link: Link, name: str) -> tuple[Symbol, Shape]:
    table = SymbolTable(link)
    symbol = table.find(name)
    if symbol.size > _MAX:
        raise AdsReplyError(f"symbol {name}: {symbol.size} bytes are impossible")
    kind = referenced(symbol.type)
    if kind is None:
        return symbol, shape_of(symbol.type, symbol.size, symbol.code, table.type)
    size = size_of(kind, table.type)  # a handle gives what is referred to, and not the address
    if size is None or size > _MAX:
        raise AdsSymbolError(f"symbol {name}: the size of {kind}, to which it refers, is not known: name its target")
    return replace(symbol, size=size), shape_of(kind, size, BIG_TYPE, table.type)


@contextmanager
def _handle(link: Link, name: str) -> Iterator[int]:
    handle = link.handle(name)
    try:
        yield handle
    finally:
        link.release(handle)


def _bytes(link: Link, symbol: Symbol) -> bytes:
    with _handle(link, symbol.name) as handle:
        return bytes(link.read(VALUE_BY_HANDLE, handle, symbol.size, symbol.name))


def _facts(symbol: Symbol, shape: Shape, raw: bytes) -> dict[str, Any]:
    return {
        "name": symbol.name, "type": symbol.type, "size": symbol.size, "comment": symbol.comment,
        "known": shape.known, "value": decode(shape, raw),
    }  # fmt: skip
