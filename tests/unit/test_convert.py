"""Types are learnt by one thread at a time: msgspec gives another one what it has only begun to learn."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

import clew
from clew.convert import MAX_TYPES, convert, convert_json

SRC = Path(clew.__file__).parent

RACE = """
import sys, threading
import msgspec
from clew.convert import convert, convert_json
sys.setswitchinterval(1e-6)
for _ in range(100):
    inner = msgspec.defstruct("Inner", [(f"f{i}", int | None, None) for i in range(8)])
    outer = msgspec.defstruct("Outer", [(f"g{i}", list[inner], []) for i in range(8)])
    start = threading.Barrier(4)
    def use():
        start.wait()
        assert convert({"g7": [{"f3": 1}]}, outer).g7[0].f3 == 1
        assert convert_json(b'{"f3": 1}', inner).f3 == 1
    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


@pytest.mark.slow
def test_threads_that_meet_a_type_for_the_first_time_together_live_on() -> None:
    """Without a lock around the first time this process ends by signal 11, in every run that was tried."""
    ended = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_type_that_cannot_be_remembered_is_fitted_all_the_same() -> None:
    class Odd:
        __hash__ = None  # type: ignore[assignment]

    kind: Any = Annotated[int, Odd()]
    assert (convert(3, kind), convert_json(b"4", kind)) == (3, 4)
    with pytest.raises(msgspec.ValidationError):
        convert("three", kind)


def test_a_type_that_is_none_is_refused_each_time() -> None:
    """It is not taken for learnt, and holds nobody else up."""
    for _ in range(2):
        with pytest.raises(TypeError):
            convert(1, 5)
    done = threading.Thread(target=convert, args=(1, int))
    done.start()
    done.join(60)
    assert not done.is_alive()


def dotted(node: ast.expr) -> str:
    """The name of what is called, as far as it is one: reading it as code again would take ten times as long."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def test_nobody_fits_values_by_another_way() -> None:
    """A decoder of a module's own, made as it is imported, is of plain types or none."""
    found = []
    for path in SRC.rglob("*.py"):
        if path == SRC / "convert.py":
            continue
        text = path.read_text("utf-8")
        if not re.search(r"msgspec\.(convert|\w+\.decode)|json\.Decoder", text):
            continue
        for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
            name = dotted(call.func)
            typed = any(keyword.arg == "type" for keyword in call.keywords)
            if name == "msgspec.convert" or (name.startswith("msgspec.") and name.endswith(".decode") and typed):
                found.append(f"{path.relative_to(SRC)}:{call.lineno}")
            elif name.endswith("json.Decoder") and call.args:
                named = {one.id for one in ast.walk(call.args[0]) if isinstance(one, ast.Name)}
                if named - {"list", "tuple", "dict", "str", "int", "Any", "msgspec"}:
                    found.append(f"{path.relative_to(SRC)}:{call.lineno}")
    assert found == []


def test_types_that_a_host_makes_for_each_call_are_not_kept_for_good() -> None:
    def made(n: int) -> weakref.ref[type[msgspec.Struct]]:
        type_ = msgspec.defstruct(f"Made{n}", [("a", int)])
        assert convert({"a": n}, type_) == type_(n)
        return weakref.ref(type_)

    types = [made(n) for n in range(3 * MAX_TYPES)]
    gc.collect()
    assert sum(one() is not None for one in types) <= MAX_TYPES
