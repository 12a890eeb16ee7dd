"""Where clients find a daemon, and how long they wait for it; imports nothing, for every command needs it."""

from __future__ import annotations

#: Control socket of a daemon whose configuration names no other.
CONTROL = "tcp://127.0.0.1:9873"
#: Longest wait for one answer [s].
ANSWER_S = 10.0
#: Who follows something sits out a daemon that is silent for so long [s], as while it is restarted.
PATIENCE_S = 60.0
