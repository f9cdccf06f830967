"""Benchmarks of the whole system: `penstock bench`."""

from penstock.bench.run import WORKLOADS, run
from penstock.bench.target import Options

__all__ = ["WORKLOADS", "Options", "run"]
