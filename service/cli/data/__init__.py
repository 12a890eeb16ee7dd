"""Commands on recordings.

Where to start: `importing` converts a log into a recording by a mapping file. `recordings` describes a recording,
recovers one that was cut off, and exports it. `replay` plays a recording through a daemon of its own and shows the
estimates.

Formats are those of `drivers.files`; docs/recordings.md describes them.
"""

__all__ = ["importing", "recordings", "replay"]
