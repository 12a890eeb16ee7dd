"""Whether a host can run the daemon, and keep a cycle: facts, checks of them, and a cycle that is tried."""
