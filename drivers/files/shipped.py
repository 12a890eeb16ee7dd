"""Folders that come with the product beside the packages, `configs` and `deploy`, in a clone and in a wheel."""

from importlib.resources import files
from pathlib import Path


def shipped(folder: str) -> Path:
    """Return such a folder; the build of a wheel puts it and all packages into `thetad`."""
    return Path(str(files("drivers.files"))).parent.parent / folder
