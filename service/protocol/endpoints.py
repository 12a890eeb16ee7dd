"""Default endpoint and time limits of clients; imports nothing, because every command needs it."""

#: Default control socket of a daemon.
CONTROL = "tcp://127.0.0.1:9873"
#: Longest wait for one reply [s].
ANSWER_S = 10.0
#: Longest tolerated silence of a daemon while following something [s], as during a restart.
PATIENCE_S = 60.0
