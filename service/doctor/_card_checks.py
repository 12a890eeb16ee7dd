"""Checks of the network cards of a bus: facts in, findings out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from service.doctor.facts import Card
from service.doctor.finding import Finding


def check_card(card: Card, others: Sequence[str], coalescing: str | None, silent: str = "") -> Iterator[Finding]:
    """Yield the findings about one card; `others` are the names of all cards of the host.

    `coalescing` is the output of `ethtool -c`: empty if the card does not coalesce, None if there is none; `silent`
    says why not, and is empty if ethtool is missing.
    """
    if not card.exists:
        known = ", ".join(others) or "none"
        yield Finding("card", "failed", f"{card.name}: not there", f"name one of: {known}")
        return
    yield _state(card)
    yield _driver(card)
    yield _managers(card)
    yield _coalescing(card, coalescing, silent)


def _state(card: Card) -> Finding:
    if not card.up:
        return Finding("card", "failed", f"{card.name}: down", f"ip link set {card.name} up (as root)")
    if not card.link:
        return Finding("card", "failed", f"{card.name}: no link", "plug in the cable, and switch the first drive on")
    return Finding("card", "ok", f"{card.name}: up, with a link")


def _driver(card: Card) -> Finding:
    value = f"{card.name}: {card.driver or 'virtual'}"
    if card.wireless or card.usb:  # USB alone takes a large part of a cycle
        kind = "wireless" if card.wireless else "behind USB"
        return Finding("card_driver", "failed", f"{value}, {kind}", "use a card on PCI Express")
    if card.driver is None:
        return Finding("card_driver", "ok", f"{value}, for simulated drives")
    return Finding("card_driver", "ok", value)


def _managers(card: Card) -> Finding:
    if not card.managers:
        return Finding("card_manager", "ok", f"{card.name}: none")
    value = f"{card.name}: {', '.join(card.managers)}"
    return Finding("card_manager", "warning", value, f"thetad deploy install --interface {card.name}")


def _coalescing(card: Card, text: str | None, silent: str) -> Finding:
    name = "card_coalescing"
    if text is None and silent:
        return Finding(name, "unknown", f"{card.name}: ethtool: {silent}", f"ethtool -c {card.name} (as root)")
    if text is None:
        return Finding(name, "unknown", f"{card.name}: ethtool is not installed", "apt install ethtool")
    values = {key: int(value) for key, value in re.findall(r"^([rt]x-usecs):\s*(\d+)$", text, re.M)}
    adaptive = re.findall(r"\b([RT]X): on\b", " ".join(re.findall(r"^Adaptive (.*)$", text, re.M)))
    if not values and not adaptive:
        return Finding(name, "not applicable", f"{card.name}: the card has none")
    found = [f"{key} {each}" for key, each in sorted(values.items())] + [f"adaptive {each}" for each in adaptive]
    value = f"{card.name}: {', '.join(found)}"
    if not any(values.values()) and not adaptive:
        return Finding(name, "ok", value)
    # With adaptation the card chooses the times itself, whatever their setting.
    off = "".join(f" adaptive-{each.lower()} off" for each in adaptive)
    return Finding(name, "warning", value, f"ethtool -C {card.name}{off} rx-usecs 0 tx-usecs 0 (as root)")
