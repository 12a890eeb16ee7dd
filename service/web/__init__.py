"""The web process: health, metrics and the dashboard by HTTP.

Where to start: `server` receives the messages of all processes into a `_cache` and serves HTTP in the same event loop.
`_app` has the routes: static files, `_health` for probes, `_metrics` for Prometheus, `_dashboard` for the page's API
with `_live` sections, one of them an overview of all arms.

`guard` and `_connection` limit who may ask and for how long; `_actions` are the only changes a browser can request,
passed on by `_request_proxy`. No request reaches the 1 kHz processes.
"""

__all__ = ["guard", "server"]
