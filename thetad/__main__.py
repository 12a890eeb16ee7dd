"""The command `thetad`, also as `python -m thetad`."""

from service.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
