"""Notices of a driver as events: at once, and of what flaps less and less often, but in the end the newest."""

from __future__ import annotations

from collections import deque

from drivers.driver import Notice
from service.acquisition._notices import NoticeTeller


def test_what_flaps_is_told_less_and_less_often_and_the_newest_in_the_end() -> None:
    told: list[tuple[int, str]] = []
    now_ms, notices = 0, deque[Notice]()
    teller = NoticeTeller(lambda kind, text: told.append((now_ms, f"{kind} {text}")))
    for now_ms in range(0, 700_000, 50):
        if now_ms < 600_000:  # 20 changes a second
            notices.append(Notice(("lost", "back")[now_ms // 50 % 2], "slave 1", str(now_ms)))
        teller.turn(notices, now_ms * 1_000_000)
    assert told[:2] == [(0, "lost 0"), (1000, "lost 1000 (19 notices before this one are left out)")]
    assert len(told) < 20
    assert told[-1][1].startswith("back 599950")
    told.clear()
    for now_ms in range(10**6, 10**6 + 3_600_000, 10_000):
        notices.append(Notice("lost", "slave 1", "every ten seconds"))
        teller.turn(notices, now_ms * 1_000_000)
    assert len(told) < 70
