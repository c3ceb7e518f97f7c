"""Writing settings files: TOML (toml.io, v1.0) of plain values, enough for what the suite reads."""

import json
from collections.abc import Mapping, Sequence

Value = str | int | float | bool | Sequence["Value"] | Mapping[str, "Value"]


def document(table: Mapping[str, Value]) -> str:
    """The top-level table, a key a line."""
    return "".join(f"{_string(key)} = {_value(value)}\n" for key, value in table.items())


def _value(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _string(value)
        case Mapping():
            return "{" + ", ".join(f"{_string(k)} = {_value(v)}" for k, v in value.items()) + "}"
        case _:
            return "[" + ", ".join(_value(item) for item in value) + "]"


def _string(text: str) -> str:
    # JSON's strings are TOML's basic strings, but for DEL, which TOML wants escaped.
    return json.dumps(text).replace("\x7f", "\\u007f")
