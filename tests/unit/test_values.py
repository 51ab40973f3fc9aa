"""Test that Values behave like frozen dataclasses with keyword fields."""

from functools import cached_property
from typing import ClassVar

import pytest

from entrypoint.base.codec import plain, reader
from entrypoint.base.values import State, Value, fresh, replace


class Ended(Value):
    name: str
    code: int = 0
    marks: tuple[str, ...] = ()


class Lost(Value):
    name: str
    code: int = 0
    marks: tuple[str, ...] = ()


def test_values_with_equal_type_and_fields_are_equal():
    assert Ended(name="a") == Ended(code=0, name="a") != Ended(name="b")
    assert Ended(name="a") != Lost(name="a")
    assert len({Ended(name="a"), Ended(code=0, name="a"), Lost(name="a")}) == 2


def test_repr_of_a_value_is_like_a_dataclass():
    assert repr(Ended(name="a", marks=("x",))) == "Ended(name='a', code=0, marks=('x',))"


@pytest.mark.parametrize("given", [{}, {"name": "a", "cod": 1}, {"code": 1}], ids=str)
def test_missing_or_unknown_field_is_refused(given):
    with pytest.raises(TypeError, match="Ended takes name, code, marks; got"):
        Ended(**given)


def test_value_is_immutable():
    with pytest.raises(AttributeError, match="cannot set name"):
        Ended(name="a").name = "b"


def test_value_matches_patterns_by_field_name():
    match Ended(name="a", code=3):
        case Lost():
            pytest.fail("another type")
        case Ended(name=name, code=3):
            assert name == "a"


def test_value_survives_a_json_round_trip():
    message = Ended(name="a", code=3, marks=("x", "y"))
    assert plain(message) == {"name": "a", "code": 3, "marks": ["x", "y"]}
    assert reader(Ended)(plain(message)) == message
    with pytest.raises(KeyError):
        reader(Ended)({"name": "a"})


class Base(Value):
    """A base type for the type `Extended`."""

    known: ClassVar = "of the type"
    name: str
    stdin: str = ""


class Extended(Base):
    apart: ClassVar = frozenset({"stdin"})
    number: int = 3

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("less than nothing")

    @cached_property
    def doubled(self) -> int:
        return 2 * self.number


class Count(State):
    name: str
    seen: list[int] = fresh(list)


def test_value_type_inherits_fields_of_its_base():
    assert Extended.fields == ("name", "stdin", "number")
    assert Extended(name="a") == Extended(name="a", stdin="x") != Extended(name="a", number=4)
    assert Base(name="a") != Base(name="a", stdin="x")
    with pytest.raises(ValueError, match="less than nothing"):
        Extended(name="a", number=-1)


def test_changed_copy_recomputes_its_properties():
    value = Extended(name="a", number=2)
    assert value.doubled == 4 and value == Extended(name="a", number=2)
    changed = replace(value, number=5)
    assert (changed.name, changed.doubled) == ("a", 10)
    with pytest.raises(TypeError, match="Extended takes"):
        replace(value, cod=1)


def test_state_is_mutable_with_separate_defaults():
    one, other = Count(name="a"), Count(name="a")
    one.seen.append(1)
    one.name = "b"
    assert (one.seen, other.seen, other.name) == ([1], [], "a")
    assert one != Count(name="b", seen=[1])
