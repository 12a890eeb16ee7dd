"""The daemon: processes, sockets, storage and commands."""
