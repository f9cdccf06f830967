"""Postgres stores no NUL characters in a text, and outputs of tasks may well hold them."""


def storable(value: str) -> str:
    """The same text with each NUL replaced, as undecodable bytes of an output are."""
    return value.replace("\0", "\ufffd") if "\0" in value else value
