"""placeholder until demo lands."""
from __future__ import annotations
import argparse
from typing import Any
def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Nothing yet."""
