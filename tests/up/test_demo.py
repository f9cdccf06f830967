"""`penstock up`, `down` and `demo` as a user runs them, on the real processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.samples import pi
from penstock.up.data_directory import DataDirectory


def penstock(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "penstock", *words]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=90, stdin=subprocess.DEVNULL
    )


def test_the_demo_runs_its_campaign_and_ends_by_itself(scratch: Path) -> None:
    done = penstock("demo", "--tasks", "40", "--data", str(scratch))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "40 of 40 tasks succeeded" in done.stdout
    assert "Pi is about 3.1" in done.stdout
    assert "log tail" in done.stdout
    assert DataDirectory(scratch).owner() is None


def test_a_system_in_the_background_answers_refuses_a_second_and_goes_down(scratch: Path) -> None:
    where = ("--data", str(scratch))
    started = penstock("up", "--detach", "--listen", "127.0.0.1:0", *where)
    try:
        assert started.returncode == 0, started.stderr
        address = DataDirectory(scratch).address()
        assert address is not None
        assert address.url in started.stdout
        hello = penstock("submit", "--wait", *where, "--", "echo", "hello")
        assert hello.returncode == 0, hello.stderr
        again = penstock("up", "--detach", *where)
        assert again.returncode != 0
        assert "penstock down" in again.stderr
    finally:
        stopped = penstock("down", *where)
    assert stopped.returncode == 0
    assert DataDirectory(scratch).owner() is None
    assert penstock("status", *where).returncode != 0


def test_the_sample_estimates_pi() -> None:
    counts = [pi.count_inside(seed, 20_000) for seed in range(1, 6)]
    assert pi.estimate(sum(counts), 100_000) == pytest.approx(3.1416, abs=0.02)
