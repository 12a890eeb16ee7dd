"""An arm of a daemon that runs already."""

from __future__ import annotations

from service.client import Control
from service.commission._site import Site
from service.commission.context import Ask
from service.commission.errors import DeclinedError, StepFailedError
from service.commission.settings import Payload


class Running:
    """The arm of a running daemon.

    Parameters
    ----------
    control : Control
    arm : str, optional
        May be left out where there is only one.
    ask : callable or None
        Who mounts a payload; None: nobody is there.
    """

    rehearsal = False

    def __init__(self, control: Control, arm: str | None, ask: Ask | None) -> None:
        self._site, self._ask = Site(control, arm), ask

    def site(self) -> Site:
        """Return the arm."""
        return self._site

    def mount(self, payload: Payload | None) -> None:
        """Ask for it."""
        what = "Take the payload off" if payload is None else f"Mount the payload of {payload.mass:g} kg"
        if self._ask is None:
            raise StepFailedError(f"{what.lower()}: nobody is there to do it; leave out --yes for this")
        if not self._ask(f"{what}; is it done?"):
            raise DeclinedError(what)
