"""Substitution in the tasks of an array."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.worker.harness import WorkerUnderTest

from penstock.worker.arrays import is_template, text_template, value_template, values

names = st.text(st.characters(exclude_characters="{}", codec="utf-8"), min_size=1, max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@given(json_values, st.integers(-1000, 1000))
def test_a_template_without_names_stays_as_it_is(template: Any, index: int) -> None:
    if not is_template(template):
        assert value_template(template)(values(index, None)) == template


@given(st.dictionaries(names, json_values, min_size=1), st.text(max_size=10), st.text(max_size=10))
def test_each_name_becomes_its_value(row: dict[str, Any], before: str, after: str) -> None:
    known = values(None, row)
    for name, value in row.items():
        assert value_template("{" + name + "}")(known) == value
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if "{" not in before + after and "}" not in before + after:
            assert text_template(before + "{" + name + "}" + after)(known) == before + text + after


@given(names, st.integers())
def test_braces_around_anything_else_belong_to_the_command(name: str, index: int) -> None:
    if name != "index":
        text = "awk '{" + name + "}' {}"
        assert text_template(text)(values(index, {})) == text


def test_values_are_not_looked_at_again() -> None:
    known = values(3, {"a": "{index}", "b": "x"})
    assert text_template("{a}-{b}-{index}")(known) == "{index}-x-3"


def test_a_column_called_index_hides_the_index() -> None:
    assert value_template(["{index}"])(values(3, {"index": "mine"})) == ["mine"]


def test_an_array_of_handlers_gets_its_indexes_as_numbers(one_worker: WorkerUnderTest) -> None:
    arguments = ["{index}", "task {index}", {"deep": ["{index}"]}]
    one_worker.run(10, 3, handler="sample_handlers:echo", arguments=arguments)
    found = [one_worker.results[10 + i].result["args"] for i in range(3)]
    assert found == [[i, f"task {i}", {"deep": [i]}] for i in range(3)]


def test_an_array_of_commands_gets_rows_in_all_its_texts(
    one_worker: WorkerUnderTest,
) -> None:
    directory = str(one_worker.directory.resolve())
    rows = [{"word": "one", "n": 1, "there": directory}, {"word": "two", "n": 2, "there": "/"}]
    one_worker.run(
        1,
        2,
        parameters=rows,
        command=["sh", "-c", "echo $W {n} {index} $PENSTOCK_INDEX ${HOME:+{word}}; pwd"],
        environment={"W": "<{word}>"},
        working_directory="{there}",
    )
    assert one_worker.results[1].stdout == f"<one> 1 0 0 one\n{directory}\n"
    assert one_worker.results[2].stdout == "<two> 2 1 1 two\n/\n"
