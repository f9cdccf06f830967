"""Finding the coordinator and the token."""

from pathlib import Path

import msgspec
import pytest

from penstock.client.address import Address, discover
from penstock.errors import Invalid, Unavailable


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "admin.token").write_text("local\n")
    document = {"url": "http://127.0.0.1:1234", "token_file": str(tmp_path / "admin.token")}
    (tmp_path / "address.json").write_bytes(msgspec.json.encode(document))
    return tmp_path


def test_what_is_given_comes_before_the_environment(data: Path) -> None:
    environ = {"PENSTOCK_URL": "http://other:1", "PENSTOCK_TOKEN": "other"}
    assert discover(environ, url="http://x:2/", token="t") == Address("http://x:2", "t")


def test_the_environment_comes_before_the_local_system(data: Path) -> None:
    environ = {"PENSTOCK_URL": "http://x:1", "PENSTOCK_TOKEN": "t", "PENSTOCK_DATA": str(data)}
    assert discover(environ) == Address("http://x:1", "t")


def test_a_token_file_is_read(data: Path) -> None:
    environ = {"PENSTOCK_URL": "http://x:1", "PENSTOCK_TOKEN_FILE": str(data / "admin.token")}
    assert discover(environ) == Address("http://x:1", "local")


def test_the_token_of_the_environment_comes_before_its_token_file(data: Path) -> None:
    environ = {"PENSTOCK_TOKEN": "t", "PENSTOCK_TOKEN_FILE": str(data / "missing")}
    assert discover(environ, url="http://x:1") == Address("http://x:1", "t")


@pytest.mark.parametrize("environ", [{}, {"PENSTOCK_URL": "http://x:1"}])
def test_a_given_data_directory_names_the_local_system(data: Path, environ: dict[str, str]) -> None:
    assert discover(environ, data=data) == Address("http://127.0.0.1:1234", "local")


def test_the_data_directory_of_the_environment_names_the_local_system(data: Path) -> None:
    found = discover({"PENSTOCK_DATA": str(data)})
    assert found == Address("http://127.0.0.1:1234", "local")


def test_the_local_token_is_not_shown_to_another_address(data: Path) -> None:
    environ = {"PENSTOCK_DATA": str(data)}
    assert discover(environ, url="http://elsewhere:1").token is None
    assert discover(environ, url="http://127.0.0.1:1234/").token == "local"


def test_without_any_address_the_user_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="penstock up"):
        discover({}, data=tmp_path)


@pytest.mark.parametrize("url", ["localhost:80", "", "ftp://x"])
def test_what_is_not_an_address_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="http://HOST:PORT"):
        discover({}, url=url)


def test_a_damaged_address_file_is_named(data: Path) -> None:
    (data / "address.json").write_text("{")
    with pytest.raises(Invalid, match=r"address\.json"):
        discover({}, data=data)


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="missing"):
        discover({}, url="http://x:1", token_file=tmp_path / "missing")
