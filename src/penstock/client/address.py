"""Where the coordinator is, and the token to show it.

In this order: what the caller gives, the environment (PENSTOCK_URL, PENSTOCK_TOKEN,
PENSTOCK_TOKEN_FILE), and the file `address.json` that a system started with `penstock up` keeps in
its data directory. A token belongs to the address that it was found with: an address that was
given never gets the token of another system on this machine.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from penstock.configuration import DEFAULT_DATA, read_token
from penstock.errors import Invalid, Unavailable

ADDRESS_FILE = "address.json"


class Address(msgspec.Struct, frozen=True):
    url: str
    token: str | None = None


class LocalSystem(msgspec.Struct, frozen=True):
    """The content of the address file."""

    url: str
    token_file: str | None = None


def discover(
    environ: Mapping[str, str],
    *,
    url: str | None = None,
    token: str | None = None,
    token_file: str | Path | None = None,
    data: str | Path | None = None,
) -> Address:
    """Find the coordinator to talk to."""
    if url is None and data is None:
        url = environ.get("PENSTOCK_URL") or None
    if token is None and token_file is None:
        token = environ.get("PENSTOCK_TOKEN") or None
        token_file = environ.get("PENSTOCK_TOKEN_FILE") or None
    directory = Path(data or environ.get("PENSTOCK_DATA") or DEFAULT_DATA)
    if token or token_file:
        token = read_token(token or "", token_file or "")
    if url is None:
        local = local_system(directory)
        if local is None:
            raise Unavailable(
                f"No coordinator is known: there is no {directory / ADDRESS_FILE}. "
                "Start one with 'penstock up', or set PENSTOCK_URL."
            )
        url = local.url
        if token is None and local.token_file is not None:
            token = read_token("", directory / local.token_file)
    elif token is None:
        local = local_system(directory)
        if local is not None and local.url == url.rstrip("/") and local.token_file is not None:
            token = read_token("", directory / local.token_file)
    if not url.startswith(("http://", "https://")):
        raise Invalid(f"{url!r} is not an address. Write it as http://HOST:PORT.")
    return Address(url.rstrip("/"), token)


def local_system(directory: Path) -> LocalSystem | None:
    """The system that 'penstock up' runs, or ran, in this data directory."""
    path = directory / ADDRESS_FILE
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}.") from error
    try:
        found = msgspec.json.decode(content, type=LocalSystem)
    except msgspec.DecodeError as error:
        raise Invalid(
            f"{path} is not an address file ({error}). Remove it and run 'penstock up' again."
        ) from error
    return LocalSystem(found.url.rstrip("/"), found.token_file)
