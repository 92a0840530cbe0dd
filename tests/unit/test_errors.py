"""The tree of errors: drawn as it is, with codes that tell its leaves apart."""

from __future__ import annotations

import inspect
import pickle
import re
from collections import Counter

import pytest

from clew import errors
from clew.errors import ClewError

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, ClewError) and value.__module__ == errors.__name__
}
# A family has the code of the leaf that stands for all of it, where there is one.
SHARED = {"internal_error": {"ClewError", "InternalError"}, "invalid_input": {"Invalid", "InvalidInput"}}


def drawn() -> dict[str, str]:
    """The tree in the module's docstring: each name with the name above it."""
    assert errors.__doc__ is not None
    above: dict[str, str] = {}
    family = ""
    tree = errors.__doc__.split("::\n\n", 1)[1].split("\n\n", 1)[0]
    for line in tree.splitlines()[1:]:
        begins, words = re.fullmatch(r"    ([├└│])(.*)", line).groups()  # type: ignore[union-attr]
        names = re.findall(r"\b[A-Z]\w+", words)
        if begins != "│":
            family = names.pop(0)
            above[family] = "ClewError"
        above.update(dict.fromkeys(names, family))
    return above


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """Every class stands in it once, below its base; nothing else does."""
    bases = {name: cls.__bases__[0].__name__ for name, cls in CLASSES.items() if cls is not ClewError}
    assert drawn() == bases
    assert errors.__doc__ is not None
    assert errors.__doc__.split("::\n\n", 1)[1].startswith("    ClewError\n")


def test_every_class_is_public_and_has_one_base() -> None:
    """`__all__` is sorted and complete."""
    assert errors.__all__ == sorted(CLASSES)
    assert {len(cls.__bases__) for cls in CLASSES.values()} == {1}


def test_a_code_names_one_error() -> None:
    """But for the two families that are named by their leaf."""
    codes = Counter(cls.code for cls in CLASSES.values())
    shared = {code: {name for name, cls in CLASSES.items() if cls.code == code} for code in codes if codes[code] > 1}
    assert shared == SHARED


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_class_has_a_code_of_its_own_in_words(name: str) -> None:
    """Written where the class is: a code that is inherited would change with its base."""
    assert "code" in vars(CLASSES[name])
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", CLASSES[name].code)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_an_error_carries_its_sentence_and_its_ids(name: str) -> None:
    """An id that is not known is not there; the sentence is what people read."""
    error = CLASSES[name]("it is so", session_id="ses_1", turn_id=None, index=0)
    assert (str(error), error.message, error.args) == ("it is so", "it is so", ("it is so",))
    assert error.ids == {"session_id": "ses_1", "index": 0}


def test_an_error_survives_the_way_to_another_process() -> None:
    """With its ids."""
    error = pickle.loads(pickle.dumps(errors.SessionBusy("busy", session_id="ses_1")))
    assert (type(error), str(error), error.ids) == (errors.SessionBusy, "busy", {"session_id": "ses_1"})


def test_one_error_does_not_touch_the_ids_of_another() -> None:
    """Each has a dict of its own."""
    one, two = ClewError("one"), ClewError("two")
    one.ids["a"] = 1
    assert two.ids == {}
