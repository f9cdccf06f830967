"""Python's cycle collector, set for processes that handle large batches.

A batch of fifty thousand decoded values makes the collector look through all of them dozens of
times, in vain: they hold no cycles. It took nine tenths of the time of a submission.
"""

import gc

ALLOCATIONS_BETWEEN_COLLECTIONS = 200_000


def relax_collector() -> None:
    """Look for cycles rarely, and never in what was loaded at the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(ALLOCATIONS_BETWEEN_COLLECTIONS, 20, 50)
