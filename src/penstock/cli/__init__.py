"""The command line. `penstock --help` is its table of contents."""

from penstock.cli.root import main

__all__ = ["main"]
