"""What waits to be reported, in memory and on disk."""

import errno
import os
from pathlib import Path

import msgspec
import pytest

from penstock.events.manager_protocol import REPORT_LIMIT_BYTES
from penstock.events.tasks import AttemptResult, TaskStart
from penstock.events.worker_protocol import Results
from penstock.manager import spool as spool_module
from penstock.manager.buffer import key_of
from penstock.manager.reports import Outbox
from penstock.manager.spool import Spool


def _result(task_id: int, stdout: str = "") -> AttemptResult:
    return AttemptResult(
        task_id=task_id, started_at=2 * 10**15, ended_at=2 * 10**15 + 5, worker=3, stdout=stdout
    )


def test_a_report_fits_into_a_commit() -> None:
    outbox = Outbox()
    results = [_result(task, "\x01" * 5000 if task % 7 == 0 else "") for task in range(20_000)]
    outbox.finish(results)
    seen: list[AttemptResult] = []
    while (contents := outbox.next()) is not None:
        assert len(msgspec.json.encode(contents.finished)) <= REPORT_LIMIT_BYTES * 1.1
        seen += contents.finished
        outbox.answered()
    assert seen == results


def test_one_huge_result_still_goes_out() -> None:
    outbox = Outbox()
    outbox.finish([_result(1, "\x01" * 60_000), _result(2)])
    contents = outbox.next()
    assert contents is not None
    assert [result.task_id for result in contents.finished] == [1]


def test_a_start_that_is_over_is_not_reported() -> None:
    outbox = Outbox()
    outbox.start([TaskStart(task_id=1, started_at=1), TaskStart(task_id=2, started_at=1)])
    outbox.finish([_result(1)])
    contents = outbox.next()
    assert contents is not None
    assert [start.task_id for start in contents.started] == [2]


def test_dropped_results_settle_without_being_reported() -> None:
    outbox = Outbox()
    outbox.finish([_result(1), _result(2), _result(3)])
    outbox.drop({key_of(2, 1)})
    contents = outbox.next()
    assert contents is not None
    assert [result.task_id for result in contents.finished] == [1, 3]
    assert contents.results == 3


def test_what_was_not_answered_is_found_by_the_next_manager(tmp_path: Path) -> None:
    first = Spool(tmp_path)
    first.add([_result(1), _result(2)])
    first.add([_result(3)])
    again = Spool(tmp_path)
    assert [result.task_id for result in again.recover()] == [1, 2, 3]
    again.add([_result(4)])
    again.answered(3)
    third = Spool(tmp_path)
    assert [result.task_id for result in third.recover()] == [4]
    third.answered(1)
    assert Spool(tmp_path).recover() == []


def test_a_half_written_result_is_left_to_its_worker(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.add([_result(1)])
    spool.add([_result(2)])
    spool.close()
    (path,) = tmp_path.glob("*.results")
    path.write_bytes(path.read_bytes()[:-3])
    assert [result.task_id for result in Spool(tmp_path).recover()] == [1]


def test_a_result_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.add([_result(1)])
    deep = msgspec.Raw(b"\x91" * 5000 + b"\xc0")
    spool.add([msgspec.structs.replace(_result(2), result=deep)])
    no_text = msgspec.msgpack.encode(Results(results=[_result(3, "text")]))
    spool.add_encoded(no_text.replace(b"text", b"\xff\xff\xff\xff"), 1)
    spool.add([_result(4)])
    spool.add_encoded(b"", 0)
    again = Spool(tmp_path)
    assert [result.task_id for result in again.recover()] == [1, 4]
    again.answered(2)
    assert Spool(tmp_path).recover() == []


def test_a_write_that_a_full_disk_cut_short_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path)
    spool.add([_result(1)])
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, data: write(file, data[: len(data) // 2]))
        spool.add([_result(2)])
    spool.add([_result(3)])
    assert [result.task_id for result in Spool(tmp_path).recover()] == [1, 3]
    spool.answered(3)
    assert Spool(tmp_path).recover() == []


def test_a_full_file_goes_on_being_used_while_there_cannot_be_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    spool = Spool(tmp_path)
    text = "x" * spool_module.FILE_BYTES
    with monkeypatch.context() as full:
        full.setattr(os, "open", refuse)
        spool.add([_result(1, text)])
    spool.add([_result(2)])
    spool.add([_result(3)])
    assert [result.task_id for result in Spool(tmp_path).recover()] == [1, 2, 3]


def test_files_go_when_their_results_are_answered(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    text = "x" * (spool_module.FILE_BYTES // 4)
    for task in range(12):
        spool.add([_result(task, text)])
    assert len(list(tmp_path.iterdir())) == 4
    spool.answered(7)
    assert len(list(tmp_path.iterdir())) == 3
    assert [result.task_id for result in Spool(tmp_path).recover()][:2] == [4, 5]
    spool.answered(5)
    spool.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 0
