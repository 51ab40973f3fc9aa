"""Bases for types that are fields and little else: as dataclasses, which would compile six methods for each.

A launcher has some seventy such types, and needs them before it starts anything. With dataclasses, that took more time
than all else that it imports. Fields are given by name. Defaults are shared by all instances, or `fresh`.
"""

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from entrypoint.python310 import dataclass_transform

T = TypeVar("T")


class Default:
    """What a field begins with, where an instance is not to share it, or where more is to be said of the field."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def fresh(make: Callable[[], T]) -> T:
    """Return a default that is made for each instance: `fresh(list)`."""
    default: Any = Default(make)
    return default


class _Fields:
    """Made of all fields that have no default; TypeError where one lacks, or is none."""

    fields: ClassVar[tuple[str, ...]] = ()
    defaults: ClassVar[dict[str, Any]] = {}
    _makers: ClassVar[dict[str, Callable[[], Any]]] = {}
    _known: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        """Take the fields of a new type, after those of the one that it extends."""
        own = vars(cls)
        added = [name for name, kind in own.get("__annotations__", {}).items() if "ClassVar" not in str(kind)]
        given = {name: own[name] for name in added if name in own}
        cls.fields = tuple(dict.fromkeys([*cls.fields, *added]))
        cls.defaults = {**cls.defaults, **{name: of for name, of in given.items() if not isinstance(of, Default)}}
        cls._makers = {**cls._makers, **{name: of.make for name, of in given.items() if isinstance(of, Default)}}
        cls._known = frozenset(cls.fields)

    def __init__(self, **given: Any) -> None:
        values = {**self.defaults, **given}
        values |= {name: make() for name, make in self._makers.items() if name not in given}
        if values.keys() != self._known:
            wanted = ", ".join(self.fields) or "no fields"
            raise TypeError(f"{type(self).__name__} takes {wanted}; given were {', '.join(given) or 'none'}")
        self.__dict__.update(values)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check or complete what was given."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.fields)})"


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Value(_Fields):
    """Never changes, and equals another of its type with equal fields; but for those in `apart`."""

    apart: ClassVar[frozenset[str]] = frozenset()

    def __setattr__(self, name: str, _: Any) -> None:
        raise AttributeError(f"cannot set {name}: a {type(self).__name__} does not change")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _in_order(self) == _in_order(other)

    def __hash__(self) -> int:
        return hash((type(self), *_in_order(self)))


@dataclass_transform(kw_only_default=True)
class State(_Fields):
    """Changes; equal to itself alone."""


def replace(value: T, **changes: Any) -> T:
    """Return a copy of a Value, or of a State, with other fields."""
    return type(value)(**{name: getattr(value, name) for name in value.fields} | changes)  # type: ignore[attr-defined]


def _in_order(value: Value) -> list[Any]:
    return [getattr(value, name) for name in value.fields if name not in value.apart]
