"""The library's events as chunks, without the library: what the wires of the integration tests do not show."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from clew.providers.base import ModelRequest, StepEnd
from clew.providers.pydantic_ai.stream import Translator, step_end
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk
from clew.transcript.message import Message
from clew.transcript.session import Model
from clew.transcript.usage import Usage


def translator() -> Translator:
    message = Message("m1", "user", [{"type": "text", "text": "hello"}], {})
    return Translator(ModelRequest(model=Model("p", "m"), system="", messages=(message,)), "p")


def start(index: int, kind: str, **fields: Any) -> Any:
    return SimpleNamespace(event_kind="part_start", index=index, part=SimpleNamespace(part_kind=kind, **fields))


def grow(index: int, kind: str, **fields: Any) -> Any:
    return SimpleNamespace(event_kind="part_delta", index=index, delta=SimpleNamespace(part_delta_kind=kind, **fields))


def call(index: int, id: str, name: str, args: Any) -> Any:
    return start(index, "tool-call", tool_call_id=id, tool_name=name, args=args, provider_details=None)


def args(index: int, written: Any, name: str | None = None) -> Any:
    return grow(index, "tool_call", args_delta=written, tool_name_delta=name, provider_details=None)


def play(*events: Any) -> list[Chunk]:
    made = translator()
    return [chunk for event in events for chunk in made.take(event)] + list(made.end())


def test_nothing_counts_as_begun_while_nothing_was_said() -> None:
    """An empty beginning may still be followed by a failure that is worth another try."""
    made = translator()
    empty = [start(0, "thinking", content=""), start(1, "text", content=""), grow(1, "text", content_delta="")]
    assert ([chunk for event in empty for chunk in made.take(event)], made.began) == ([], False)
    list(made.take(grow(1, "text", content_delta="x")))
    assert made.began


def test_a_file_the_model_made_is_a_file() -> None:
    """As a data URL, for the store to put aside."""
    content = SimpleNamespace(data_uri="data:image/png;base64,eA==", media_type="image/png")
    assert play(start(0, "file", content=content)) == [c.File("data:image/png;base64,eA==", "image/png")]


def test_a_call_that_is_said_again_replaces_what_was_written() -> None:
    """It stays one call, under its first id, with its last arguments and the whole of its name."""
    first, other = "call_0123456789abcdef", "call_another_0123456789"
    assert play(call(0, first, "re", '{"a":'), args(0, "1}", "ad"), call(0, other, "read", {"b": 2})) == [
        c.ToolInputStart(first, "re"),
        c.ToolInputDelta(first, '{"a":'),
        c.ToolInputDelta(first, "1}"),
        c.ToolInputDelta(first, '{"b": 2}'),
        c.ToolInputAvailable(first, "read", {"b": 2}),
    ]


def test_events_about_nothing_we_know_are_passed_over() -> None:
    """A part of a new kind, arguments for a call that never began, an event of another sort."""
    odd = SimpleNamespace(event_kind="final_result")
    assert play(odd, start(0, "compaction", content="x"), args(7, "{}")) == []


def test_usage_that_contradicts_itself_is_never_negative() -> None:
    """More cache than input, more reasoning than output."""
    used = SimpleNamespace(
        input_tokens=5,
        output_tokens=5,
        output_reasoning_tokens=9,
        cache_read_tokens=7,
        cache_write_tokens=-1,
        unmeasured_requests=0,
    )
    said = {"finish_reason": None, "provider_details": None, "provider_response_id": None, "model_name": "m"}
    response = SimpleNamespace(usage=used, **said)
    assert step_end(response, has_calls=False) == StepEnd(
        usage=Usage(input=0, output=0, reasoning=9, cache_read=7, cache_write=0),
        finish_reason="other",
        data={"response_model": "m"},
    )
