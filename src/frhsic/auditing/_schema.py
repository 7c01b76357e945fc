"""The form of ``Audit.to_dict()`` as a JSON schema, read from the types."""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from frhsic.auditing._results import SCHEMA, Audit
from frhsic.inference.bounds import Certificate

_PLAIN = {str: "string", bool: "boolean", int: "integer"}


def schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of :meth:`Audit.to_dict`.

    Numbers that are not finite, such as a bound that says nothing, are null.

    Examples
    --------
    >>> schema()["properties"]["schema"]
    {'const': 'frhsic.audit/3'}
    """
    definitions: dict[str, Any] = {}
    top = _object(Audit, definitions)
    top["properties"] = {"schema": {"const": SCHEMA}, **top["properties"], "digest": {"type": "string"}}
    top["required"] = ["schema", *top["required"], "digest"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        **top,
        "$defs": dict(sorted(definitions.items())),
    }


def _object(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(cls, localns={"Certificate": Certificate})
    names = [field.name for field in fields(cls)]
    return {
        "type": "object",
        "properties": {name: _of(hints[name], definitions) for name in names},
        "required": names,
        "additionalProperties": False,
    }


def _of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_of(one, definitions) for one in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _of(arguments[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(arguments[1], definitions)}
    if hint is type(None):
        return {"type": "null"}
    if hint is float:
        return {"type": ["number", "null"]}
    if is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}
            definitions[hint.__name__] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    return {"type": _PLAIN[hint]}
