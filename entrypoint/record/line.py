"""Make lines of a record of typed values, and read them back. lines.py has a type for each kind of line.

A line is a JSON array: its kind, its time, and the values of its type's fields.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from entrypoint.base.values import Value, fresh

WRONG = (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)
MOST_NUMBER = 1e20  # the most in an honest line; file systems without a limit report 8 EiB
T = TypeVar("T", bound=Value)
KINDS: dict[str, type["Line"]] = {}


class Part(Value):
    """Hold one object of a line. Its fields may be missing: then the type's default holds, and is not written."""

    def __init__(self, **given: Any) -> None:
        if not given.keys() <= self._known:
            raise TypeError(f"{type(self).__name__} takes {', '.join(self.fields)}; got {', '.join(given)}")
        self.__dict__.update(given)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__))


class Line(Value):
    """A line of a record; one of a kind that this version does not know has its time only.

    `positional`: how many fields stand in the array itself; one object after them has the others by name. A field whose
    default is None is left out while it is None.
    """

    KIND: ClassVar[str] = ""
    positional: ClassVar[int] = 0
    at: float = fresh(time.time)  # seconds since the epoch by the host's clock

    def __init_subclass__(cls, kind: str, positional: int = 99) -> None:
        """Register a type of lines."""
        super().__init_subclass__()
        cls.KIND, cls.positional = kind, positional
        KINDS[kind] = cls

    def to_line(self) -> bytes:
        """Return the line as JSON."""
        known, fields = self.__dict__, self.fields
        last = 1 + self.positional
        found = [self.KIND, round(known["at"], 3), *[known[name] for name in fields[1:last]]]
        if last < len(fields):
            known, defaults = self.__dict__, self.defaults
            named = [(name, known[name]) for name in fields[last:]]
            found.append({name: v for name, v in named if v is not None or defaults.get(name, "") is not None})
        return _encoded(found).encode()

    @classmethod
    def from_line(cls, line: bytes) -> "Line":
        """Read a line; raise one of WRONG if it is malformed."""
        return line_of(json.loads(line))

    @classmethod
    def of(cls, at: float, values: Sequence[Any]) -> "Line":
        """Return a line of this type; raise one of WRONG if a value is malformed or missing."""
        positional, named = _readers_of(cls)  # type: ignore[arg-type]
        known = {name: read(value) for (name, read), value in zip(positional, values, strict=False)}
        if named:
            found = values[len(positional)]
            known |= {name: named[name](value) for name, value in found.items() if name in named}
        known["at"] = at
        return made(cls, known)


def line_of(found: Any) -> Line:
    """Return a line of a parsed array; raise one of WRONG if it is malformed."""
    kind, at, *values = found
    if kind not in KINDS:
        return Line(at=number(at))
    return KINDS[kind].of(number(at), values)


def number(value: Any) -> float:
    """Return a finite number of a sane size as it is; raise ValueError for anything else."""
    if type(value) in (int, float) and -MOST_NUMBER < value < MOST_NUMBER:
        return value  # type: ignore[no-any-return]
    raise ValueError(f"{value!r} is no number")


def made(kind: type[T], known: Mapping[str, Any]) -> T:
    """Return a Value as its own constructor would, in half the time."""
    found = object.__new__(kind)
    values = {**kind.defaults, **known}
    if len(values) != len(kind.fields):
        raise TypeError(f"{kind.__name__} takes {', '.join(kind.fields)}; got {', '.join(known)}")
    found.__dict__.update(values)
    return found


_encoded = json.JSONEncoder(separators=(",", ":"), default=vars).encode


@cache
def _readers_of(kind: type[Line]) -> tuple[list[tuple[str, Callable[[Any], Any]]], dict[str, Callable[[Any], Any]]]:
    """Return how to read the positional fields of a type, and how those of its object."""
    hints = get_type_hints(kind)
    readers = [(name, _reader(hints[name])) for name in kind.fields[1:]]
    return readers[: kind.positional], dict(readers[kind.positional :])


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return the function that checks and makes a value of this type from JSON; it raises one of WRONG."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if origin is UnionType:
        read = _reader(_without_none(kind))
        return lambda value: None if value is None else read(value)
    if origin is Sequence:
        read = _reader(inner[0])
        return lambda value: [read(each) for each in plainly(list, value)]
    if origin is Mapping:
        read = _reader(inner[1])
        return lambda value: {name: read(each) for name, each in value.items()}
    if issubclass(kind, tuple):
        return partial(_tuple_of, kind, len(kind._fields))  # type: ignore[attr-defined]
    if issubclass(kind, Part):
        hints = get_type_hints(kind)
        readers = {name: _reader(_without_none(hints[name])) for name in kind.fields}
        return lambda value: kind(**{name: readers[name](each) for name, each in value.items() if name in readers})
    return number if kind in (int, float) else lambda value: plainly(kind, value)


def _without_none(kind: Any) -> Any:
    return next((each for each in get_args(kind) if each is not NoneType), kind) if NoneType in get_args(kind) else kind


def _tuple_of(kind: Any, count: int, value: list[float]) -> Any:
    if not -MOST_NUMBER < sum(value) < MOST_NUMBER:  # faster than to look at each
        raise ValueError(f"{value!r} are no numbers")
    return tuple.__new__(kind, value) if len(value) == count else kind(*value[:count])


def plainly(kind: type, value: Any) -> Any:
    """Return a value of this very type; raise TypeError for any other."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
