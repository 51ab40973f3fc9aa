"""Convert values of the policy, such as events, to JSON and back, by the types of their fields.

A Value becomes an object with all its fields by name; a tuple or a set becomes an array.
"""

import math
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from entrypoint.base.values import Value


def plain(value: Any) -> Any:
    """Return a value that JSON can hold. Sets are sorted, so that equal messages give equal text."""
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    kind: Any = type(value)
    return {name: plain(getattr(value, name)) for name in _types(kind)}


@cache
def reader(kind: Any, whole: bool = True) -> Callable[[Any], Any]:
    """Return the function that makes a value of this type from JSON.

    The function raises KeyError, TypeError or ValueError if the JSON is not of this type. It ignores unknown fields.
    Unless `whole`, a missing field has its default. The function is made once for each type, since a coordinator reads
    the reports of a thousand hosts.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:  # a type or None
        read = reader(next(each for each in inner if each is not NoneType))
        return lambda value: None if value is None else read(value)
    if origin in (tuple, frozenset):
        readers = [reader(each) for each in inner if each is not ...]
        if origin is tuple and inner[-1] is not ...:
            return lambda value: tuple([read(part) for read, part in zip(readers, _array(value), strict=True)])
        return lambda value: origin(map(readers[0], _array(value)))
    if origin is Mapping:
        read_each = reader(inner[1])
        return lambda value: {key: read_each(each) for key, each in _plainly(dict, value).items()}
    if issubclass(kind, Value):
        make: Any = kind
        of_fields = {name: reader(each) for name, each in _types(make).items()}
        needed = [name for name in of_fields if whole or name not in make.defaults]

        def read_fields(value: Any) -> Any:
            given = {name: value[name] for name in needed} | _plainly(dict, value)
            return make(**{name: of_fields[name](each) for name, each in given.items() if name in of_fields})

        return read_fields
    return kind if issubclass(kind, Enum) else _finite if kind is float else partial(_plainly, kind)


def _array(value: Any) -> list[Any]:
    return value if isinstance(value, list) else _plainly(list, value)


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, float | int) or not math.isfinite(value):
        raise TypeError(f"{value!r} is no time")
    return float(value)


def _plainly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


@cache
def _types(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {name: hints[name] for name in kind.fields}
