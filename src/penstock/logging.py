"""How processes log: one line per event, readable at a terminal, JSON otherwise, on stderr."""

import logging
import sys
from typing import Literal, get_args

import structlog

from penstock.errors import Invalid

LogLevel = Literal["debug", "info", "warning", "error"]


def set_up_logging(level: str) -> None:
    """Log what is at least as grave as `level`, which may come straight from the environment."""
    if level not in get_args(LogLevel):
        known = ", ".join(get_args(LogLevel))
        raise Invalid(f"PENSTOCK_LOG_LEVEL must be one of {known}, not {level!r}.")
    number: int = getattr(logging, level.upper())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer()
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(stream=sys.stderr, level=max(number, logging.WARNING))
