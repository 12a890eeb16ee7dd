"""What is reported of an open ring."""

from types import SimpleNamespace
from typing import Any

import pytest

from drivers.ethercat._outages import Outages
from drivers.ethercat.config import EthercatConfig
from drivers.ethercat.driver import EthercatDriver
from tests.lab.ethercat.configs import settings

LINKS = {"both": b"\x30", "one": b"\x10", "lost": None}


@pytest.mark.parametrize(
    ("turns", "kinds"),
    [
        (["both both both", "both one both", "one one both", "one one both", "both both both"], "open closed"),
        (["both both one", "both both one", "both both lost", "both both one"], "open"),
        (["lost both both", "both lost both"], ""),
    ],
)
def test_a_ring_is_open_when_two_turns_agree_and_a_lost_frame_changes_nothing(turns: list[str], kinds: str) -> None:
    told: list[tuple[str, str]] = []
    config = EthercatConfig.model_validate(settings(3, interface="m0", redundant_interface="m1"))
    bus: Any = SimpleNamespace(read_register=lambda position, *_: LINKS[turn[position]], interface_problem=lambda: "")
    outages = Outages(bus, config, lambda kind, _, text: told.append((kind, text)))
    drives = SimpleNamespace(enabled=True)
    driver: Any = SimpleNamespace(
        _ends=set(), _ends_turn=2, _statuses=[None] * 3, _bus=bus, _outages=outages, _drives=drives
    )
    for turn in map(str.split, turns):
        for _ in turn:
            EthercatDriver._check_cables(driver)
    assert [kind for kind, _ in told] == [f"ring_{kind}" for kind in kinds.split()]
    if kinds == "open closed":
        assert "position 0" in told[0][1]
        assert "position 1" in told[0][1]
