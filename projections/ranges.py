"""Finding and taking tasks in ranges."""

import heapq
from bisect import bisect_right

from penstock.events import TaskId
from penstock.projections.state import Range, State, TaskGroup


def find_range(state: State, task_id: TaskId) -> Range | None:
    """The range of an unfinished task. A range whose tasks have all ended is forgotten."""
    place = bisect_right(state.starts, task_id) - 1
    if place < 0:
        return None
    found = state.ranges[state.starts[place]]
    return found if task_id < found.end else None


def has_ended(state: State, task_id: TaskId) -> bool:
    """Whether a task that was submitted has ended."""
    source = find_range(state, task_id)
    if source is None:
        return True
    return task_id not in state.tasks and (task_id < source.next or task_id in source.skipped)


def range_of(state: State, task_id: TaskId) -> Range:
    """The range of a task that is known to be unfinished."""
    return state.ranges[state.starts[bisect_right(state.starts, task_id) - 1]]


def add_range(state: State, group: TaskGroup, new: Range) -> None:
    state.starts.append(new.first)
    state.ranges[new.first] = new
    enqueue(state, group, new.priority, new.first)


def forget_if_finished(state: State, finished: Range) -> None:
    if finished.unfinished == 0:
        del state.ranges[finished.first]
        del state.starts[bisect_right(state.starts, finished.first) - 1]


def enqueue(state: State, group: TaskGroup, priority: int, task_id: TaskId) -> None:
    heapq.heappush(group.queue, (-priority, task_id))
    state.backlog.add(group.id)


def dequeue(state: State, group: TaskGroup, priority: int, task_id: TaskId) -> None:
    """Remove an entry, which is nearly always the first."""
    queue = group.queue
    entry = (-priority, task_id)
    if queue and queue[0] == entry:
        heapq.heappop(queue)
    else:
        queue.remove(entry)
        heapq.heapify(queue)
    if not queue:
        state.backlog.discard(group.id)


def take(state: State, group: TaskGroup, source: Range, count: int) -> None:
    """The next `count` tasks of a range leave the queue, and the skipped ones behind them."""
    dequeue(state, group, source.priority, source.next)
    source.taken += count
    while source.next in source.skipped:
        source.skipped.remove(source.next)
        source.taken += 1
    if source.taken < source.count:
        enqueue(state, group, source.priority, source.next)
