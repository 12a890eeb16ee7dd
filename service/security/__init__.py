"""Who may use a daemon: keys in files, the registry of clients, their roles, and the authenticator of connections."""
