"""Tasks of an array: names in braces become the values of one task.

`{index}` and, for each column of the task's row of parameters, `{column}` are replaced in every
text of the template. Any other text in braces stays as it is: it belongs to the command. A text
that is nothing but such a name becomes the value itself where values may be more than text.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

Values: TypeAlias = Mapping[str, Any]
Render: TypeAlias = Callable[[Values], Any]

_NAME = re.compile(r"\{([^{}]+)\}")


def values(index: int | None, row: Mapping[str, Any] | None) -> Values:
    """What the names of one task stand for. A column called `index` hides the index."""
    if index is None:
        return row or {}
    return {"index": index, **row} if row else {"index": index}


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def is_template(value: Any) -> bool:
    """Whether any text in the value holds a name in braces."""
    if isinstance(value, str):
        return "{" in value and _NAME.search(value) is not None
    if isinstance(value, list):
        return any(map(is_template, value))
    if isinstance(value, dict):
        return any(map(is_template, value.values()))
    return False


def text_template(text: str) -> Callable[[Values], str]:
    """Replaces names within a text that stays a text."""
    whole = _NAME.fullmatch(text)
    if whole is not None:
        name = whole[1]
        return lambda values: text_of(values[name]) if name in values else text

    def render(values: Values) -> str:
        def replacement(match: re.Match[str]) -> str:
            name = match[1]
            return text_of(values[name]) if name in values else match[0]

        return _NAME.sub(replacement, text)

    return render


def value_template(value: Any) -> Render:
    """Replaces names anywhere in a JSON value; what it returns is the caller's to change."""
    if isinstance(value, str) and is_template(value):
        whole = _NAME.fullmatch(value)
        if whole is None:
            return text_template(value)
        name = whole[1]
        return lambda values: values.get(name, value)
    if isinstance(value, list):
        items = [value_template(item) for item in value]
        if len(items) == 1:
            item = items[0]
            return lambda values: [item(values)]
        return lambda values: [item(values) for item in items]
    if isinstance(value, dict):
        members = [(key, value_template(item)) for key, item in value.items()]
        return lambda values: {key: item(values) for key, item in members}
    return lambda values: value
