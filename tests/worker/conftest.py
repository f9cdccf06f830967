from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.worker.harness import WorkerUnderTest, worker

HANDLERS = """
import asyncio, json, os, subprocess, sys, time


def nothing(*args, **kwargs):
    return None


def echo(*args, **kwargs):
    return {"args": args, "kwargs": kwargs}


def change(items):
    items.append(len(items))
    return items


def fail():
    raise ValueError("the reason")


def leave():
    sys.exit(3)


def die():
    os._exit(9)


def not_json():
    return object()


def nested(depth):
    value = None
    for _ in range(depth):
        value = [value] if depth % 2 else {"a": value}
    return value


def too_big():
    return "x" * 100_000


def print_both():
    print("to stdout")
    sys.stderr.write("to stderr")
    sys.stdout.buffer.write(b"bytes")


def print_much():
    for _ in range(1000):
        print("y" * 1000)


def surroundings():
    return [os.getcwd(), os.environ.get("COLOUR"), "PENSTOCK_TOKEN" in os.environ]


async def later(value):
    await asyncio.sleep(0)
    return value


def sleep(seconds):
    time.sleep(seconds)


def stubborn(path):
    open(path, "w").close()
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass


def start_child():
    global child
    child = subprocess.Popen(["sh", "-c", "exit 3"])


def wait_for_child():
    return child.wait()


value = 5
"""


@pytest.fixture(scope="session")
def handlers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a module of handlers, importable by workers."""
    directory = tmp_path_factory.mktemp("handlers")
    (directory / "sample_handlers.py").write_text(HANDLERS)
    (directory / "broken_handlers.py").write_text("raise RuntimeError('broken module')")
    return directory


@pytest.fixture
def one_worker(scratch: Path, handlers: Path) -> Iterator[WorkerUnderTest]:
    with worker(scratch, handlers) as started:
        yield started
