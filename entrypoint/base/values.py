"""Provide base classes for types that consist of fields, without the import time of dataclasses.

A launcher has some ninety such types and needs them before it starts anything. A dataclass compiles six methods for
each type, which would take nearly as long as all other imports together. Fields are given by name. All instances share
a default, unless `fresh` makes it.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, ClassVar, TypeVar

from entrypoint.base.python310 import dataclass_transform

T = TypeVar("T")


class Default:
    """Describe a field's default that is made for each instance, or that carries more than its value."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def fresh(make: Callable[[], T]) -> T:
    """Return a default that is made for each instance, as in `fresh(list)`."""
    default: Any = Default(make)
    return default


class _Fields:
    """Take all fields that have no default, by name; raise TypeError if one is missing or unknown."""

    fields: ClassVar[tuple[str, ...]] = ()
    defaults: ClassVar[dict[str, Any]] = {}
    _makers: ClassVar[dict[str, Callable[[], Any]]] = {}
    _known: ClassVar[frozenset[str]] = frozenset()
    _checks = False  # whether a subclass has a __post_init__

    def __init_subclass__(cls) -> None:
        """Collect the fields of a new type. They follow the fields of the type that it extends."""
        own = vars(cls)
        added = [name for name, kind in own.get("__annotations__", {}).items() if "ClassVar" not in str(kind)]
        given = {name: own[name] for name in added if name in own}
        cls.fields = tuple(dict.fromkeys([*cls.fields, *added]))
        cls.defaults = {**cls.defaults, **{name: of for name, of in given.items() if not isinstance(of, Default)}}
        cls._makers = {**cls._makers, **{name: of.make for name, of in given.items() if isinstance(of, Default)}}
        cls._known = frozenset(cls.fields)
        cls._checks = cls.__post_init__ is not _Fields.__post_init__

    def __init__(self, **given: Any) -> None:
        values = self.__dict__
        values.update(self.defaults)
        for name, make in self._makers.items():
            if name not in given:
                values[name] = make()
        values.update(given)
        if values.keys() != self._known:
            wanted = ", ".join(self.fields) or "no fields"
            raise TypeError(f"{type(self).__name__} takes {wanted}; got {', '.join(given) or 'none'}")
        if self._checks:
            self.__post_init__()

    def __post_init__(self) -> None:
        """Check or complete the given values."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.fields)})"


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Value(_Fields):
    """Hold fields that never change.

    Two Values are equal if their types and their fields are equal. The fields in `apart` are not compared.
    """

    apart: ClassVar[frozenset[str]] = frozenset()
    _compared: ClassVar[Callable[[dict[str, Any]], Any]]

    def __init_subclass__(cls) -> None:
        """Collect the fields of a new type, and note which of them are compared."""
        super().__init_subclass__()
        compared = [name for name in cls.fields if name not in cls.apart]
        cls._compared = itemgetter(*compared) if compared else lambda _: None

    def __setattr__(self, name: str, _: Any) -> None:
        raise AttributeError(f"cannot set {name}: a {type(self).__name__} does not change")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        compared = type(self)._compared
        return bool(compared(self.__dict__) == compared(other.__dict__))

    def __hash__(self) -> int:
        return hash((type(self), type(self)._compared(self.__dict__)))


@dataclass_transform(kw_only_default=True)
class State(_Fields):
    """Hold fields that may change. A State is equal only to itself."""


def replace(value: T, **changes: Any) -> T:
    """Return a copy of a Value or a State with some fields changed."""
    known = value.__dict__
    return type(value)(**{name: known[name] for name in value.fields} | changes)  # type: ignore[attr-defined]
