"""``@tool``: a function, its hints and its docstring become a tool."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from clew.errors import PermissionDenied, ToolFailed
from clew.tools.arguments import check_arguments
from clew.tools.base import MAX_OUTPUT_CHARS, Tool, ToolContext, ToolOutput
from clew.tools.decorator import FunctionTool, tool
from clew.transcript.rule import Target
from tests.unit.test_tools_support import context_of


class Stop(msgspec.Struct):
    """A place on the way."""

    city: str
    nights: int = 1


class Tree(msgspec.Struct):
    """A type within itself."""

    children: list[Tree] = []


@tool
async def plan(
    stops: list[Stop], mode: Literal["train", "boat"], context: ToolContext, budget: float | None = None
) -> str:
    """Plan a journey.

    More about it.
    """
    return f"{[stop.city for stop in stops]} by {mode}, {budget}, {context.session_id}"


@tool(name="add-up", timeout_ms=5, needs_workspace=True)
def add(first: int, second: Annotated[int, msgspec.Meta(ge=0)] = 2) -> int:
    """Add two numbers."""
    return first + second


async def run(made: Tool, args: dict[str, Any], tmp_path: Path) -> Any:
    return (await made.execute(args, context_of(tmp_path))).value


def test_a_tool_has_what_the_contract_asks_for() -> None:
    """Name, description, limits: from the function, unless said otherwise."""
    made: Tool = plan
    assert (made.name, made.timeout_ms, made.needs_workspace, made.asks_human) == ("plan", 120_000, False, False)
    assert made.description == "Plan a journey.\n\nMore about it."
    assert (add.name, add.timeout_ms, add.needs_workspace) == ("add-up", 5, True)


def test_the_schema_comes_from_the_hints_with_references_resolved() -> None:
    """The context is no argument; defaults are shown; nothing beyond the parameters is taken."""
    assert plan.input_schema == {
        "type": "object",
        "properties": {
            "stops": {
                "type": "array",
                "items": {
                    "title": "Stop",
                    "description": "A place on the way.",
                    "type": "object",
                    "properties": {"city": {"type": "string"}, "nights": {"type": "integer", "default": 1}},
                    "required": ["city"],
                },
            },
            "mode": {"enum": ["boat", "train"]},
            "budget": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        },
        "additionalProperties": False,
        "required": ["stops", "mode"],
    }


def test_a_type_within_itself_keeps_a_reference_that_resolves() -> None:
    """It cannot be written out, so it is named once."""

    def grow(tree: Tree) -> str:
        """Grow."""
        return ""

    made = tool(grow)
    assert check_arguments(made.input_schema, {"tree": {"children": [{"children": []}]}}) is None
    assert check_arguments(made.input_schema, {"tree": {"children": [{"children": 1}]}}) is not None


async def test_arguments_arrive_in_the_types_of_the_hints(tmp_path: Path) -> None:
    """Objects become structs; the context is handed in; a default is used when nothing is said."""
    args = {"stops": [{"city": "Knossos"}, {"city": "Naxos"}], "mode": "boat"}
    assert await run(plan, args, tmp_path) == "['Knossos', 'Naxos'] by boat, None, ses_0"


async def test_a_whole_number_written_with_a_point_is_an_integer(tmp_path: Path) -> None:
    """JSON Schema takes 1.0 for one, and some providers send nothing else."""
    assert await run(add, {"first": 1.0, "second": 3.0}, tmp_path) == 4


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "needs first"),
        ({"first": 1, "third": 3}, "takes no third"),
        ({"first": "one"}, "first does not fit"),
        ({"first": 1, "second": -1}, "second does not fit"),
        ({"first": 1.5}, "first does not fit"),
    ],
)
async def test_arguments_that_do_not_fit_fail_with_a_sentence(args: dict[str, Any], words: str, tmp_path: Path) -> None:
    """Also when the run did not check them before."""
    with pytest.raises(ToolFailed, match=words):
        await run(add, args, tmp_path)


async def test_a_sync_function_runs_in_a_thread(tmp_path: Path) -> None:
    """It may block; the loop goes on."""

    @tool
    def where() -> str:
        """Say where."""
        return threading.current_thread().name

    assert await run(where, {}, tmp_path) == "clew-tool"
    assert threading.current_thread().name != "clew-tool"


async def test_what_a_function_raises_reaches_the_model_as_a_sentence(tmp_path: Path) -> None:
    """Errors of clew pass as they are, also a denial; the end of the host is not up to a tool."""

    @tool
    def fail(how: str) -> None:
        """Fail."""
        raise {"value": ValueError("no thread"), "denied": PermissionDenied("no"), "exit": SystemExit(3)}.get(
            how, StopIteration()
        )

    with pytest.raises(ToolFailed, match="fail failed: ValueError: no thread"):
        await run(fail, {"how": "value"}, tmp_path)
    with pytest.raises(PermissionDenied):
        await run(fail, {"how": "denied"}, tmp_path)
    with pytest.raises(ToolFailed, match="SystemExit was raised"):
        await run(fail, {"how": "exit"}, tmp_path)
    with pytest.raises(ToolFailed, match="StopIteration was raised"):
        await run(fail, {"how": "stop"}, tmp_path)


async def test_what_a_function_returns_becomes_json_of_bounded_size(tmp_path: Path) -> None:
    """Structs as objects; long text and long JSON as two ends and a file; bytes described; the rest refused."""

    @tool
    def give(what: str) -> Any:
        """Give."""
        return {
            "struct": [Stop("Naxos")],
            "none": None,
            "own": ToolOutput({"as": "it is"}),
            "text": "x" * (MAX_OUTPUT_CHARS + 1),
            "json": ["x" * MAX_OUTPUT_CHARS],
            "bytes": b"\x89PNG\r\n\x1a\n\x00",
            "object": object(),
        }[what]

    assert await run(give, {"what": "struct"}, tmp_path) == [{"city": "Naxos", "nights": 1}]
    assert await run(give, {"what": "none"}, tmp_path) is None
    assert await run(give, {"what": "own"}, tmp_path) == {"as": "it is"}
    assert "[… 1,001 of 30,001 bytes left out here, sha256 " in await run(give, {"what": "text"}, tmp_path)
    assert (await run(give, {"what": "json"}, tmp_path)).startswith('["xxx')
    assert "binary output: PNG image, 9 bytes, sha256 " in await run(give, {"what": "bytes"}, tmp_path)
    assert sorted(path.stat().st_size for path in (tmp_path / "spill").iterdir()) == [9, 30_001, 30_004]
    with pytest.raises(ToolFailed, match="not JSON"):
        await run(give, {"what": "object"}, tmp_path)


def test_the_plain_target_is_the_arguments_on_one_line_in_order() -> None:
    """So that a pattern can be written for them, however the model ordered them."""
    assert add.targets({"second": 1, "first": 2}, None) == [Target("add-up", "plain", '{"first":2,"second":1}')]


def test_targets_of_ones_own_are_used() -> None:
    """For a tool that touches something a rule should name."""
    own = tool(targets=lambda args, workspace: [Target("own", "host", args["first"])])(add._function)
    assert own.targets({"first": "a"}, None) == [Target("own", "host", "a")]


def test_the_function_can_still_be_called() -> None:
    """A decorated function stays one."""
    assert add(1, second=5) == 6


def _starred(*args: int) -> None:
    """Starred."""


def _bare(value) -> None:
    """Bare."""


def _mute(value: int) -> None: ...


def _odd(value: object) -> None:
    """Odd."""


def _lost(value: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Lost."""


@pytest.mark.parametrize("function", [_starred, _bare, _mute, _odd, _lost])
def test_a_function_that_cannot_be_a_tool_is_refused_where_it_is_written(function: Any) -> None:
    """Not at the first call."""
    with pytest.raises(TypeError, match=r"tool _(starred|bare|mute|odd|lost)"):
        tool(function)


@pytest.mark.parametrize("name", ["", "two words", "ünder", "x" * 65, "dot.ted"])
def test_a_name_no_provider_takes_is_refused(name: str) -> None:
    """Found out when the tool is made."""
    with pytest.raises(TypeError, match="cannot be called"):
        FunctionTool(add._function, name=name)
