"""Robots, mappings and configurations that tests read, as users write them."""

from pathlib import Path

FILES = Path(__file__).resolve().parent
