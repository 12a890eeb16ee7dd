"""Installation as a system service of systemd.

Where to start: `install` makes a plan of files and commands from `deploy/` (`make_plan`), lists the obstacles, and
applies it (`Plan.apply`). Nothing is written before that, and existing files that differ are only replaced on request.

`thetad deploy install` is its command (`service.cli.daemon.deploy`); deploy/README.md explains the files.
`tests/lab/deployment` has a sandbox to try it in.
"""

__all__ = ["install"]
