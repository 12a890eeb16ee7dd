"""Comparison of the slaves on the bus with those of the configuration."""

from collections.abc import Sequence
from dataclasses import dataclass

from drivers.ethercat.config import EthercatConfig
from drivers.ethercat.errors import NetworkMismatchError


@dataclass(frozen=True)
class FoundSlave:
    """Identity of a slave on the bus."""

    position: int  # on the bus, from 0
    name: str
    vendor_id: int
    product_code: int
    revision: int
    alias: int
    serial: int

    def __str__(self) -> str:
        text = f"{self.name or 'slave'} ({_identity(self.vendor_id, self.product_code, self.revision)}"
        text += f", alias {self.alias}" if self.alias else ""
        return text + (f", serial {self.serial})" if self.serial else ")")


@dataclass(frozen=True)
class ExpectedSlave:
    """Identity of a slave in the configuration; None is not compared."""

    position: int
    label: str  # "joint 'joint_1'"
    vendor_id: int
    product_code: int
    revision: int | None = None
    alias: int | None = None
    serial: int | None = None

    def matches(self, found: FoundSlave) -> bool:
        """Return whether the identities agree, whatever the positions."""
        return not self.differences(found)

    def differences(self, found: FoundSlave) -> list[str]:
        """Return the differences of the identities as text; empty if there are none."""
        pairs = (
            ("vendor", self.vendor_id, found.vendor_id, "0x{:X}"),
            ("product", self.product_code, found.product_code, "0x{:X}"),
            ("revision", self.revision, found.revision, "0x{:X}"), ("alias", self.alias, found.alias, "{}"),
            ("serial", self.serial, found.serial, "{}"),
        )  # fmt: skip
        return [
            f"{name} {form.format(is_)} instead of {form.format(wanted)}"
            for name, wanted, is_, form in pairs
            if wanted is not None and wanted != is_
        ]

    def __str__(self) -> str:
        text = f"{self.label} ({_identity(self.vendor_id, self.product_code, self.revision)}"
        text += f", alias {self.alias}" if self.alias is not None else ""
        return text + (f", serial {self.serial})" if self.serial is not None else ")")


def _identity(vendor_id: int, product_code: int, revision: int | None) -> str:
    text = f"vendor 0x{vendor_id:X}, product 0x{product_code:X}"
    return text if revision is None else f"{text}, revision 0x{revision:X}"


def expected_slaves(config: EthercatConfig) -> tuple[ExpectedSlave, ...]:
    """Return the slaves of the configuration, by position."""
    slaves = [
        ExpectedSlave(
            position, f"joint {drive.joint!r}", d.vendor_id, d.product_code, d.revision, drive.alias, drive.serial
        )
        for position, drive in zip(config.positions, config.drive, strict=True)
        for d in (config.device[drive.device],)
    ]
    slaves += [
        ExpectedSlave(other.position, "[[other]]", other.vendor_id, other.product_code, other.revision)
        for other in config.other
    ]
    return tuple(sorted(slaves, key=lambda slave: slave.position))


def differences(expected: Sequence[ExpectedSlave], found: Sequence[FoundSlave]) -> list[str]:
    """Return the differences between bus and configuration, one a line; slaves in each other's place are "swapped"."""
    by_position = {slave.position: slave for slave in found}
    wrong = [e for e in expected if e.position in by_position and not e.matches(by_position[e.position])]
    lines = []
    reported: set[int] = set()
    for slave in wrong:
        if slave.position in reported:
            continue
        here = by_position[slave.position]
        partner = next(
            (
                other
                for other in wrong
                if other.position not in reported
                and other is not slave
                and slave.matches(by_position[other.position])
                and other.matches(here)
            ),
            None,
        )
        if partner is not None:
            reported.add(partner.position)
            lines.append(
                f"positions {slave.position} and {partner.position}: {slave.label} and {partner.label} are swapped"
            )
        else:
            lines.append(f"position {slave.position}: {slave.label}: {', '.join(slave.differences(here))}: {here}")
    lines += [
        f"position {slave.position}: {slave} is missing" for slave in expected if slave.position not in by_position
    ]
    known = {slave.position for slave in expected}
    lines += [
        f"position {slave.position}: {slave} is not in the configuration"
        for slave in found
        if slave.position not in known
    ]
    return lines


def check_network(expected: Sequence[ExpectedSlave], found: Sequence[FoundSlave], interface: str) -> None:
    """Raise `NetworkMismatchError` with every difference between bus and configuration."""
    lines = differences(expected, found)
    if lines:
        raise NetworkMismatchError(
            f"the network on {interface} is not the configured one ({len(found)} slaves found, {len(expected)} "
            "configured): " + "; ".join(lines)
        )
