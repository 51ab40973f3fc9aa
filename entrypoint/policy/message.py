"""A base for the types of what the loop and the policy tell one another: as frozen dataclasses, made sooner.

A launcher has some forty of these, and needs them before it starts anything. dataclasses compiles six methods for each
while it is imported, which took more time than all else that the policy is made of.
"""

from typing import Any, ClassVar

from entrypoint.python310 import dataclass_transform


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Message:
    """A value with the fields that a subclass annotates, by their names; TypeError for others, or where one lacks."""

    fields: ClassVar[tuple[str, ...]] = ()
    _names: ClassVar[frozenset[str]] = frozenset()
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        """Take the fields of a new type."""
        cls.fields = tuple(cls.__annotations__)
        cls._names = frozenset(cls.fields)
        cls._defaults = {name: vars(cls)[name] for name in cls.fields if name in vars(cls)}

    def __init__(self, **given: Any) -> None:
        values = {**self._defaults, **given}
        if values.keys() != self._names:
            wanted = ", ".join(self.fields) or "no fields"
            raise TypeError(f"{type(self).__name__} takes {wanted}; given were {', '.join(given) or 'none'}")
        self.__dict__.update(values)

    def __setattr__(self, name: str, _: Any) -> None:
        raise AttributeError(f"cannot set {name}: a {type(self).__name__} does not change")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self.fields)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.fields)})"
