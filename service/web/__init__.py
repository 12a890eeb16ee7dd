"""The web process: what a running daemon tells by HTTP."""
