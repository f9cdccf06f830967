"""`penstock demo` as a user runs it, on the real processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.samples import pi
from penstock.up.data_directory import DataDirectory


def test_without_a_terminal_the_demo_runs_its_campaign_and_ends_by_itself(scratch: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "demo", "--data", str(scratch)],
        check=False,
        capture_output=True,
        text=True,
        timeout=90,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1,000 of 1,000 tasks succeeded" in done.stdout
    assert "Pi is about 3.1" in done.stdout
    assert "log tail" in done.stdout
    assert DataDirectory(scratch).owner() is None


def test_the_sample_estimates_pi() -> None:
    counts = [pi.count_inside(seed, 20_000) for seed in range(1, 6)]
    assert pi.estimate(sum(counts), 100_000) == pytest.approx(3.1416, abs=0.02)
