"""Access control: keys in files, the registry of clients, roles, and admission of connections.

Where to start: `keys` reads and writes CURVE keys; `registry` is the list of clients and roles. `authenticator` admits
connections by key (ZAP), `access` checks each request by role and rate, `http_policy` limits requests by HTTP.

`files` refuses secrets that others can read or replace; `path_ownership` finds who could redirect a path. `thetad
keys` is the command; docs/security.md explains the model.
"""

__all__ = ["access", "authenticator", "files", "http_policy", "keys", "path_ownership", "registry"]
