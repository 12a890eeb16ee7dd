"""The `thetad` command."""
