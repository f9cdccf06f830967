"""The header by which a repeated request is recognised."""

from starlette.requests import Request

from penstock.errors import Invalid

MAX_KEY = 256


def idempotency_key(request: Request) -> str:
    key = request.headers.get("idempotency-key", "")
    if len(key) > MAX_KEY:
        raise Invalid(f"The header Idempotency-Key may have {MAX_KEY} characters.")
    return key
