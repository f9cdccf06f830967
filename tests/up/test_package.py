"""What is built and installed holds all of Penstock, and all that it needs is pinned."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build(project: Path, target: str, into: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)]
    subprocess.run(command, cwd=project, check=True, capture_output=True, timeout=60)
    return next(into.iterdir())


def unpack(archive: Path, into: Path) -> Path:
    with tarfile.open(archive) as opened:
        for member in opened:
            if (content := opened.extractfile(member)) is not None:
                (into / member.name).parent.mkdir(parents=True, exist_ok=True)
                (into / member.name).write_bytes(content.read())
    return next(into.iterdir())


def modules(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("penstock/")}


def test_a_wheel_holds_the_linked_folders_also_when_it_is_made_from_the_source_archive(
    scratch: Path,
) -> None:
    direct = modules(build(ROOT, "wheel", scratch / "direct"))
    unpacked = unpack(build(ROOT, "sdist", scratch / "source"), scratch / "unpacked")
    from_source = modules(build(unpacked, "wheel", scratch / "indirect"))

    assert from_source == direct
    for folder in ("events", "projections", "coordinator", "manager", "worker", "migrations"):
        there = {path.name for path in (ROOT / folder).glob("*.py")}
        assert there <= {name.rpartition("/")[2] for name in direct if f"/{folder}/" in name}
    assert "penstock/py.typed" in direct


def test_every_dependency_is_pinned_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    names = {re.split(r"[\[<>=!~; ]", one)[0].lower().replace("_", "-") for one in wanted}
    text = (ROOT / "constraints.txt").read_text()
    pinned = set(re.findall(r"^([a-z0-9.-]+)==\S+(?: ;[^\\]*)? \\\n    --hash=", text, re.M))
    assert names <= pinned


def test_the_pins_name_no_place_to_download_from() -> None:
    assert "://" not in (ROOT / "constraints.txt").read_text()
