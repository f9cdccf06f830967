"""What a manager knows and decides, without doing any of it.

The manager is responsible for a task from the moment it was pushed until the coordinator has its
result on disk. In between the task is in the buffer, at a worker, or in the outbox. `Core` is told
what happened and says what to do: what to give to workers, what to report, whom to cancel or kill.
"""

from collections.abc import Callable, Collection, Iterable

import msgspec

from penstock.events.event import Timestamp
from penstock.events.exits import Exit
from penstock.events.manager_protocol import AssignGroup, Held, SyncReply, TaskBatch
from penstock.events.tasks import Attempt, AttemptResult
from penstock.events.worker_journal import Mark
from penstock.events.worker_protocol import Cancel, Hello, Results
from penstock.manager import endings, pacing
from penstock.manager.buffer import Buffer, Key, Source, Span, key_of, task_and_attempt
from penstock.manager.reports import Contents, Outbox
from penstock.manager.worker_state import WorkerState

CANCEL_BACKSTOP_SECONDS = 5.0
TIMEOUT_BACKSTOP_SECONDS = 10.0
DROP_GRACE_SECONDS = 5.0
LONG_TASK_SECONDS = 0.1
WITHOUT_WORKERS_SECONDS = 10.0
EXCESS_FACTOR = 2
EXCESS_SECONDS = 1.0


class Cancelling(msgspec.Struct, frozen=True):
    grace_seconds: float
    reason: str
    deadline: float
    """When the worker is killed, on the monotonic clock."""


class Core:
    def __init__(self, worker_count: int) -> None:
        self.worker_count = worker_count
        self.task_group: AssignGroup | None = None
        self.buffer = Buffer()
        self.workers: dict[int, WorkerState] = {}
        self.outbox = Outbox()
        self.draining = False
        self.stopping = False
        self._keys: set[Key] = set()
        """Every task that this manager is responsible for."""
        self._cancelling: dict[Key, Cancelling] = {}
        self._timed_out: set[Key] = set()
        self._dropped: dict[Key, float] = {}
        """Tasks that the coordinator took away while a worker had them, and when, on the monotonic
        clock, the worker should have ended them."""
        self._without_workers_since: float | None = None
        self._excess_since: float | None = None
        self.without_workers = False
        """For so long that nobody should wait for them."""

    # What the coordinator says

    def on_tasks(self, batches: Iterable[TaskBatch]) -> None:
        for batch in batches:
            source = Source(batch)
            keys = source.keys(0, batch.count)
            if self._keys.isdisjoint(keys):
                self._keys.update(keys)
                self.buffer.put(Span(source, 0, batch.count))
                continue
            for offset, key in enumerate(keys):
                # Pushed twice: by a push and by the answer to a synchronisation.
                if key not in self._keys:
                    self._keys.add(key)
                    self.buffer.put(Span(source, offset, offset + 1))
        if not self.takes_tasks:
            self.give_back_buffer()

    @property
    def takes_tasks(self) -> bool:
        return not (self.draining or self.stopping or self.without_workers)

    def on_cancel(
        self, tasks: Iterable[Attempt], reason: str, grace_seconds: float, now: float
    ) -> list[AttemptResult]:
        """Tasks that no worker has end here; the others are cancelled at the next `cancellations`.

        Returns new results.
        """
        wanted = {key_of(task.task_id, task.attempt) for task in tasks}
        results = [endings.cancelled(key, reason) for key in self.buffer.remove(wanted)]
        deadline = now + grace_seconds + CANCEL_BACKSTOP_SECONDS
        for worker in self.workers.values():
            for key in wanted & worker.held.keys():
                if key not in self._cancelling:
                    self._cancelling[key] = Cancelling(grace_seconds, reason, deadline)
        self.outbox.finish(results)
        return results

    def on_group(self, group: AssignGroup | None) -> None:
        self.task_group = group

    def on_release(self, task_group_id: int) -> None:
        if self.task_group is not None and self.task_group.task_group_id == task_group_id:
            self.task_group = None
            self.give_back_buffer()

    def give_back_buffer(self) -> None:
        self.outbox.give_back(_attempts(self.buffer.clear()))

    def on_time(self, now: float) -> None:
        """Called every second or so: give back what others could run sooner."""
        if self.workers:
            self._without_workers_since = None
        elif self._without_workers_since is None:
            self._without_workers_since = now
        elif now - self._without_workers_since >= WITHOUT_WORKERS_SECONDS:
            self.without_workers = True
            self.give_back_buffer()
        # Tasks that prove longer than those before shrink the capacity below what was pushed. A
        # single long one among short ones does so too, for a moment: that is not worth the trouble.
        excess = self._unfinished - self.capacity
        if excess <= (EXCESS_FACTOR - 1) * self.capacity or not len(self.buffer):
            self._excess_since = None
        elif self._excess_since is None:
            self._excess_since = now
        elif now - self._excess_since >= EXCESS_SECONDS:
            self._excess_since = None
            self.outbox.give_back(_attempts(self.buffer.take_last(excess)))

    def held(self) -> list[Held]:
        """All that this manager is responsible for, as it tells the coordinator."""
        waiting = set(self.buffer.keys())
        return [Held(*task_and_attempt(key), key not in waiting) for key in self._keys]

    def on_sync_reply(self, reply: SyncReply, now: float) -> list[AttemptResult]:
        """Returns new results. What the workers have to be told is in `cancellations`."""
        dropped = {key_of(task.task_id, task.attempt) for task in reply.drop}
        self.buffer.remove(dropped)
        self.outbox.drop(dropped)
        self._keys -= dropped
        deadline = now + DROP_GRACE_SECONDS + CANCEL_BACKSTOP_SECONDS
        for worker in self.workers.values():
            for key in dropped & worker.held.keys():
                del worker.held[key]
                self._dropped[key] = deadline
        for key in dropped:
            self._cancelling.pop(key, None)
            self._timed_out.discard(key)
        self.task_group = reply.task_group
        return self.on_cancel(reply.cancel, "", 30.0, now)

    # What workers say

    def on_hello(self, hello: Hello) -> None:
        """A worker that this manager knows already said hello again: nothing is new."""
        known = self.workers.get(hello.worker)
        if known is not None and known.pid == hello.pid:
            return
        keys = [key_of(task.task_id, task.attempt) for task in hello.held]
        self._keys.update(keys)
        self.workers[hello.worker] = WorkerState(hello.worker, hello.pid, dict.fromkeys(keys))
        self.without_workers = False
        self._without_workers_since = None

    def on_results(self, worker: WorkerState, message: Results) -> list[AttemptResult]:
        """Returns the results that are news, all of which are in the outbox now."""
        held = worker.held
        accepted: list[AttemptResult] = []
        total = 0
        for result in message.results:
            key = result.task_id << 16 | result.attempt
            if key in held:
                del held[key]
                accepted.append(result)
                total += result.ended_at - result.started_at
        if accepted:
            worker.average_seconds = pacing.learn(
                worker.average_seconds, max(0, total) / 1e6 / len(accepted)
            )
            self.outbox.finish(accepted)
            if self._cancelling:
                self._forget(accepted)
        started = [task for task in message.started if key_of(task.task_id, task.attempt) in held]
        if started:
            self.outbox.start(started)
            worker.average_seconds = max(worker.average_seconds or 0.0, LONG_TASK_SECONDS)
        if message.returned:
            returned = [key_of(task.task_id, task.attempt) for task in message.returned]
            accepted += self._take_back(worker, [key for key in reversed(returned) if key in held])
        return accepted

    def _take_back(self, worker: WorkerState, keys: Collection[Key]) -> list[AttemptResult]:
        """Tasks that a worker had and did not begin wait again. Returns new results."""
        results: list[AttemptResult] = []
        waiting: list[tuple[Key, Source]] = []
        for key in keys:
            source = worker.held.pop(key)
            cancelling = self._cancelling.pop(key, None)
            if cancelling is not None:
                results.append(endings.cancelled(key, cancelling.reason))
            elif source is None:
                self.outbox.give_back([Attempt(*task_and_attempt(key))])
            else:
                waiting.append((key, source))
        self.buffer.put_back(waiting)
        if not self.takes_tasks:
            self.give_back_buffer()
        self.outbox.finish(results)
        return results

    def on_death(
        self,
        number: int,
        how: Exit,
        mark: Mark | None,
        results: Iterable[AttemptResult],
        now: Timestamp,
    ) -> list[AttemptResult]:
        """A worker ended. `mark` and `results` are what its journal says. Returns new results."""
        worker = self.workers.pop(number, None)
        if worker is None:
            worker = WorkerState(number, 0, {})
            journal = {key_of(result.task_id, result.attempt): result for result in results}
            # An earlier manager's worker, which cannot say what it held: it is in the journal.
            worker.held.update(dict.fromkeys(journal.keys() - self._keys))
            if mark is not None and key_of(mark.task_id, mark.attempt) not in self._keys:
                worker.held[key_of(mark.task_id, mark.attempt)] = None
            self._keys.update(worker.held)
            results = journal.values()
        news = self._last_words(worker, how, mark, results, now)
        self.outbox.finish(news)
        self._forget(news)
        return news + self._take_back(worker, list(worker.held))

    def _last_words(
        self,
        worker: WorkerState,
        how: Exit,
        mark: Mark | None,
        results: Iterable[AttemptResult],
        now: Timestamp,
    ) -> list[AttemptResult]:
        news: list[AttemptResult] = []
        for result in results:
            key = key_of(result.task_id, result.attempt)
            if key in worker.held:
                del worker.held[key]
                news.append(result)
        suspect = key_of(mark.task_id, mark.attempt) if mark is not None else None
        if suspect in worker.held:
            del worker.held[suspect]
            news.append(self._death_of(suspect, worker, how, mark, now))
        return news

    def _death_of(
        self, key: Key, worker: WorkerState, how: Exit, mark: Mark | None, now: Timestamp
    ) -> AttemptResult:
        started_at = mark.started_at if mark is not None else 0
        if key in self._cancelling:
            end = endings.killed_to_cancel(self._cancelling[key].reason)
        elif key in self._timed_out:
            end = endings.KILLED_TO_TIME_OUT
        elif self.stopping:
            end = endings.MANAGER_STOPPED
        else:
            end = endings.worker_died(how)
        return endings.result(key, end, started_at, now, worker.number)

    def _forget(self, results: Iterable[AttemptResult]) -> None:
        for result in results:
            key = key_of(result.task_id, result.attempt)
            self._cancelling.pop(key, None)
            self._timed_out.discard(key)

    # What to do

    def feed(self) -> list[tuple[WorkerState, list[TaskBatch]]]:
        """Tasks for workers that have room."""
        if not len(self.buffer) or not self.takes_tasks:
            return []
        wanting = [(worker.room, worker) for worker in self.workers.values()]
        wanting = [(room, worker) for room, worker in wanting if room > 0]
        wanting.sort(key=lambda item: len(item[1].held))
        gifts: list[tuple[WorkerState, list[TaskBatch]]] = []
        for index, (room, worker) in enumerate(wanting):
            share = -(-len(self.buffer) // (len(wanting) - index))
            spans = self.buffer.take(min(room, share))
            if not spans:
                break
            for span in spans:
                worker.held.update(dict.fromkeys(span.keys, span.source))
            gifts.append((worker, [span.batch for span in spans]))
        return gifts

    @property
    def capacity(self) -> int:
        if not self.takes_tasks:
            return 0
        averages = [
            worker.average_seconds
            for worker in self.workers.values()
            if worker.average_seconds is not None
        ]
        prefetch = self.task_group.task_prefetch_count if self.task_group is not None else None
        return pacing.capacity(averages, self.worker_count, prefetch)

    @property
    def has_backlog(self) -> bool:
        """Whether workers have work to go on with, so that a report may gather for a moment."""
        return self._unfinished * 2 >= self.capacity

    @property
    def _unfinished(self) -> int:
        return len(self.buffer) + sum(len(worker.held) for worker in self.workers.values())

    @property
    def busy_workers(self) -> int:
        return sum(1 for worker in self.workers.values() if worker.held)

    @property
    def responsible_for(self) -> int:
        return len(self._keys)

    def on_answer(self) -> Contents:
        """The coordinator has the report under way in its log."""
        contents = self.outbox.answered()
        self._keys.difference_update(
            [result.task_id << 16 | result.attempt for result in contents.finished]
        )
        self._keys.difference_update(
            [key_of(task.task_id, task.attempt) for task in contents.returned]
        )
        return contents

    def recover(self, results: Collection[AttemptResult]) -> None:
        """Results that an earlier manager had on its disk."""
        self._keys.update(key_of(result.task_id, result.attempt) for result in results)
        self.outbox.finish(results)

    def cancellations(self) -> list[Cancel]:
        """What to tell the workers, again and again until the tasks have ended: what is said once
        may overtake the task itself on its way to the worker."""
        alike: dict[tuple[float, str], list[Key]] = {}
        for key, cancelling in self._cancelling.items():
            alike.setdefault((cancelling.grace_seconds, cancelling.reason), []).append(key)
        if self._dropped:
            alike.setdefault((DROP_GRACE_SECONDS, ""), []).extend(self._dropped)
        return [
            Cancel(tasks=_attempts(keys), reason=reason, grace_seconds=grace)
            for (grace, reason), keys in alike.items()
        ]

    def overdue(
        self, mark_of: Callable[[WorkerState], Mark | None], now: float
    ) -> list[WorkerState]:
        """Workers to kill, because they cannot end the task that they have in hand."""
        late = {key for key, deadline in self._dropped.items() if now > deadline}
        kill = [
            worker
            for worker in self.workers.values()
            if (worker.held or late)
            and (mark := mark_of(worker)) is not None
            and self._is_overdue(worker, mark, late, now)
        ]
        for key in late:
            del self._dropped[key]
        return kill

    def _is_overdue(
        self, worker: WorkerState, mark: Mark, late: Collection[Key], now: float
    ) -> bool:
        key = key_of(mark.task_id, mark.attempt)
        if key not in worker.held:
            return key in late
        cancelling = self._cancelling.get(key)
        if cancelling is not None and now > cancelling.deadline:
            return True
        source = worker.held[key]
        timeout = source.timeout_seconds if source is not None else None
        running = now - mark.began_microseconds / 1e6
        if timeout is None or running <= timeout + TIMEOUT_BACKSTOP_SECONDS:
            return False
        self._timed_out.add(key)
        return True


def _attempts(keys: Iterable[Key]) -> list[Attempt]:
    return [Attempt(*task_and_attempt(key)) for key in keys]
