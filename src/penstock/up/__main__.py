"""The background process of `penstock up --detach`: python -m penstock.up SETTINGS."""

import asyncio
import sys

import msgspec

from penstock import exit_codes
from penstock.errors import PenstockError
from penstock.logging import set_up_logging
from penstock.up import main
from penstock.up.supervisor import Settings


def run(settings: str) -> int:
    try:
        decoded = msgspec.json.decode(settings, type=Settings, dec_hook=_convert)
        set_up_logging(decoded.log_level)
        asyncio.run(main.run(decoded))
    except PenstockError as error:
        sys.stderr.write(f"{main.MESSAGE}{error.message}\n")
        return exit_codes.exit_code(error)
    return exit_codes.OK


def _convert(kind: type, value: object) -> object:
    return kind(value)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1]))
