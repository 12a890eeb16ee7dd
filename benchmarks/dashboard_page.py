"""A page of the dashboard without a browser: it asks the daemon for what `service/web/static/live.js` asks for."""

import http.client
import json
import time
from collections import Counter
from typing import Any
from urllib.parse import quote, urlsplit

WITHIN_S = 4.0  # for the newest, as the page has it
READ_S = 30.0  # for all else: longer than the daemon waits for what it has to ask for itself
AGAIN_S = 0.7  # after a question without an answer, before it is put again
_PRIOR_S = 2.0


class Page:
    """A page that looks at one arm: the newest sections, again when it has them, and friction curves every two seconds.

    Parameters
    ----------
    url : str
        The daemon's, by HTTP.
    arm : str, optional
        By default the first one that there is.

    Attributes
    ----------
    answers : Counter
        By path and status.
    updates : int
        Answers that brought a new estimate.
    epochs : int
        How many processes have answered, one after the other.
    received : int
        Bytes.
    """

    def __init__(self, url: str, arm: str = "") -> None:
        self.arm = arm
        self.answers: Counter[str] = Counter()
        self.updates = self.epochs = self.received = 0
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc)
        self._session: dict[str, Any] | None = None
        self._turn = self._epoch = 0
        self._hash = ""  # of the estimate whose names and units are known
        self._next_prior_s = 0.0

    def look(self) -> float | None:
        """Ask for what is new; returns how long that took [s], None if it was refused.

        The daemon answers when there is something new, twenty times a second at most: most of the time is that wait.

        Raises
        ------
        OSError, http.client.HTTPException
            No answer; `forget` then, as the page does.
        """
        if self._session is None:
            self._session = self._get("/api/session", within_s=WITHIN_S)
            if self._session is None:
                return None
            self.arm = self.arm or self._session["arms"][0]
        began = time.monotonic()
        query = f"?arm={quote(self.arm)}&epoch={self._epoch}&since={self._turn}"
        said = self._get("/api/now", query, WITHIN_S)
        took = time.monotonic() - began
        if said is None:
            self.forget()
            return None
        self.epochs += said["epoch"] != self._epoch
        self._turn, self._epoch = said["turn"], said["epoch"]
        self._learn(said.get("estimate"))
        return took

    def forget(self) -> None:
        """The next daemon may be another one."""
        self._connection.close()
        self._session = None

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _learn(self, estimate: dict[str, Any] | None) -> None:
        """Get names and units where the estimate is of others than those known, and now and then the curves."""
        if estimate is not None:
            self.updates += 1
            if estimate["hash"] != self._hash and (facts := self._get(f"/api/arms/{quote(self.arm)}")) is not None:
                self._hash = facts["hash"]
                self._get(f"/api/arms/{quote(self.arm)}/history", "?of=theta.0,std.0")
        if time.monotonic() >= self._next_prior_s:
            self._next_prior_s = time.monotonic() + _PRIOR_S
            self._get(f"/api/arms/{quote(self.arm)}/prior")

    def _get(self, path: str, query: str = "", within_s: float = READ_S) -> dict[str, Any] | None:
        """Return what is said; None if it was refused, with a status that is counted."""
        self._connection.timeout = within_s
        if self._connection.sock is not None:
            self._connection.sock.settimeout(within_s)
        self._connection.request("GET", path + query)
        response = self._connection.getresponse()
        body = response.read()
        self.received += len(body)
        self.answers[f"{path} {response.status}"] += 1
        return dict(json.loads(body)) if response.status == 200 else None
