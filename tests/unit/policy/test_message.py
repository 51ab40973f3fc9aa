"""Messages behave as frozen dataclasses whose fields go by name."""

from dataclasses import dataclass

import pytest

from entrypoint.policy.codec import plain, reader
from entrypoint.policy.message import Message


class Ended(Message):
    name: str
    code: int = 0
    marks: tuple[str, ...] = ()


class Lost(Message):
    name: str
    code: int = 0
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Same:
    name: str
    code: int = 0
    marks: tuple[str, ...] = ()


def test_equal_where_type_and_values_are():
    assert Ended(name="a") == Ended(code=0, name="a") != Ended(name="b")
    assert Ended(name="a") != Lost(name="a")
    assert len({Ended(name="a"), Ended(code=0, name="a"), Lost(name="a")}) == 2


def test_shown_as_a_dataclass_is():
    assert repr(Ended(name="a", marks=("x",))) == repr(Same(name="a", marks=("x",))).replace("Same", "Ended")


@pytest.mark.parametrize("given", [{}, {"name": "a", "cod": 1}, {"code": 1}], ids=str)
def test_fields_that_are_not_there(given):
    with pytest.raises(TypeError, match="Ended takes name, code, marks; given were"):
        Ended(**given)


def test_it_does_not_change():
    with pytest.raises(AttributeError, match="cannot set name"):
        Ended(name="a").name = "b"


def test_matched_by_names():
    match Ended(name="a", code=3):
        case Lost():
            pytest.fail("another type")
        case Ended(name=name, code=3):
            assert name == "a"


def test_there_and_back():
    message = Ended(name="a", code=3, marks=("x", "y"))
    assert plain(message) == {"name": "a", "code": 3, "marks": ["x", "y"]}
    assert reader(Ended)(plain(message)) == message
    with pytest.raises(KeyError):
        reader(Ended)({"name": "a"})
