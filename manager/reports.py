"""What the manager has to tell the coordinator, in the order in which it happened."""

from collections import deque
from collections.abc import Collection

import msgspec

from penstock.events.manager_protocol import REPORT_LIMIT_BYTES
from penstock.events.tasks import Attempt, AttemptResult, TaskStart
from penstock.manager.buffer import Key, key_of

_PLAIN_RESULT_BYTES = 120
"""JSON of a result that tells nothing but its times."""


class Contents(msgspec.Struct, frozen=True):
    """What one report says. `results` is how many results it settles, dropped ones included."""

    started: list[TaskStart]
    finished: list[AttemptResult]
    returned: list[Attempt]
    results: int


class Outbox:
    """One report is under way at a time; it is repeated until answered, while others gather."""

    def __init__(self) -> None:
        self._finished: deque[AttemptResult | None] = deque()
        """None stands for a result that the coordinator does not want any more."""
        self._started: list[TaskStart] = []
        self._returned: list[Attempt] = []
        self._under_way: Contents | None = None

    def finish(self, results: Collection[AttemptResult]) -> None:
        self._finished.extend(results)

    def start(self, starts: Collection[TaskStart]) -> None:
        self._started.extend(starts)

    def give_back(self, tasks: Collection[Attempt]) -> None:
        self._returned.extend(tasks)

    @property
    def waiting_results(self) -> int:
        return len(self._finished)

    def __bool__(self) -> bool:
        return bool(self._under_way or self._finished or self._started or self._returned)

    def next(self) -> Contents | None:
        """The report to send now: the one that was not answered, or the next."""
        if self._under_way is None and self:
            self._under_way = self._gather()
        return self._under_way

    def _gather(self) -> Contents:
        finished: list[AttemptResult] = []
        size = count = 0
        queue = self._finished
        while queue:
            result = queue[0]
            if result is not None:
                size += _size(result)
                if size > REPORT_LIMIT_BYTES and finished:
                    break
                finished.append(result)
            queue.popleft()
            count += 1
        # A start that is reported after its end would be refused; it is never that important.
        ended = {(result.task_id, result.attempt) for result in finished} if self._started else ()
        started = [start for start in self._started if (start.task_id, start.attempt) not in ended]
        returned = self._returned
        self._started, self._returned = [], []
        return Contents(started, finished, returned, count)

    def answered(self) -> Contents:
        """The report under way is in the log."""
        contents, self._under_way = self._under_way, None
        return contents or Contents([], [], [], 0)

    def drop(self, keys: Collection[Key]) -> None:
        """The coordinator does not want to hear of these tasks."""

        def unwanted(item: AttemptResult | TaskStart | Attempt) -> bool:
            return key_of(item.task_id, item.attempt) in keys

        self._finished = deque(
            None if result is not None and unwanted(result) else result for result in self._finished
        )
        self._started = [start for start in self._started if not unwanted(start)]
        self._returned = [task for task in self._returned if not unwanted(task)]
        if self._under_way is not None:
            self._under_way = Contents(
                [start for start in self._under_way.started if not unwanted(start)],
                [result for result in self._under_way.finished if not unwanted(result)],
                [task for task in self._under_way.returned if not unwanted(task)],
                self._under_way.results,
            )


def _size(result: AttemptResult) -> int:
    if result.result is None and not (result.stdout or result.stderr or result.message):
        return _PLAIN_RESULT_BYTES
    return len(msgspec.json.encode(result))
