"""The statements that apply a batch. Each takes whole columns and touches each row once."""

MOVE_POSITION = """
WITH moved AS (
    UPDATE position
    SET sequence = $1, counter = $2, hash = $3, updated_at = clock_timestamp()
    WHERE sequence = $4 AND build = $5
    RETURNING sequence
)
SELECT pg_notify(current_schema() || '_position', sequence::text) FROM moved
"""

TAKE = """
UPDATE task_ranges AS stored
SET taken = greatest(stored.taken, new.taken)
FROM (
    SELECT held.first, max(least(held.count, span.stop - held.first)) AS taken
    FROM unnest($1::bigint[], $2::bigint[]) AS span (start, stop)
    CROSS JOIN LATERAL (
        SELECT first, count FROM task_ranges
        WHERE first < span.stop
        AND first >= (SELECT max(first) FROM task_ranges WHERE first <= span.start)
    ) AS held
    GROUP BY held.first
) AS new
WHERE stored.first = new.first AND stored.taken < new.taken
"""

CANCEL_RESTS = """
UPDATE task_ranges AS stored
SET rest_cancelled_at = rest.at, rest_cancel_reason = rest.reason
FROM unnest($1::bigint[], $2::timestamptz[], $3::text[]) AS rest (task_group_id, at, reason)
WHERE stored.task_group_id = rest.task_group_id
AND stored.taken < stored.count AND stored.rest_cancelled_at IS NULL
"""

UPDATE_ASSIGNMENTS = """
UPDATE assignments AS stored
SET remaining = new.remaining
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS new (first, count, remaining)
WHERE stored.first = new.first
"""

UPDATE_ACTIVE = """
UPDATE active_tasks AS stored
SET state = new.state, attempt = new.attempt, manager_id = new.manager_id,
    started_at = new.started_at, worker = new.worker, not_before = new.not_before,
    cancel_requested = new.cancel_requested
FROM unnest(
    $1::bigint[], $2::bigint[], $3::smallint[], $4::integer[], $5::text[], $6::timestamptz[],
    $7::integer[], $8::timestamptz[], $9::boolean[]
) AS new (
    id, task_group_id, state, attempt, manager_id, started_at, worker, not_before,
    cancel_requested
)
WHERE stored.id = new.id
"""

COUNT = """
UPDATE task_groups AS stored
SET total = stored.total + new.total,
    waiting = CASE WHEN new.rest_cancelled THEN 0 ELSE stored.waiting END + new.waiting,
    ready = CASE WHEN new.rest_cancelled THEN 0 ELSE stored.ready END + new.ready,
    assigned = stored.assigned + new.assigned,
    running = stored.running + new.running,
    succeeded = stored.succeeded + new.succeeded,
    failed = stored.failed + new.failed,
    cancelled = stored.cancelled + new.cancelled
        + CASE WHEN new.rest_cancelled THEN stored.waiting + stored.ready ELSE 0 END,
    first_started_at = least(stored.first_started_at, new.first_started_at),
    last_finished_at = greatest(stored.last_finished_at, new.last_finished_at),
    rate_window = greatest(stored.rate_window, new.rate_window),
    rate_current = CASE WHEN stored.rate_window >= new.rate_window
            THEN stored.rate_current ELSE 0 END
        + CASE WHEN new.rate_window >= stored.rate_window THEN new.rate_current ELSE 0 END,
    rate_previous = CASE stored.rate_window - new.rate_window
        WHEN 0 THEN stored.rate_previous + new.rate_previous
        WHEN 1 THEN stored.rate_previous + new.rate_current
        WHEN -1 THEN stored.rate_current + new.rate_previous
        ELSE CASE WHEN stored.rate_window > new.rate_window
            THEN stored.rate_previous ELSE new.rate_previous END
        END
FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
    $7::bigint[], $8::bigint[], $9::bigint[], $10::boolean[], $11::timestamptz[],
    $12::timestamptz[], $13::bigint[], $14::bigint[], $15::bigint[]
) AS new (
    id, total, waiting, ready, assigned, running, succeeded, failed, cancelled, rest_cancelled,
    first_started_at, last_finished_at, rate_window, rate_current, rate_previous
)
WHERE stored.id = new.id
"""
