"""Handlers to try Penstock with; the demo and the benchmarks use them too.

penstock submit --handler penstock.samples:add --args '[1, 2]' --wait
"""

from penstock.samples.simple import add, count_primes, fail, noop, sleep

__all__ = ["add", "count_primes", "fail", "noop", "sleep"]
