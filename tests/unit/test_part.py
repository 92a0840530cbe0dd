"""Parts: what is read out of the dict, and that the dict stays as it was."""

from __future__ import annotations

from typing import Any

import pytest

from clew.transcript import part as p
from clew.transcript.message import PartRow

CALL = {"type": "tool-read", "toolCallId": "c1", "state": "input-available", "input": {"path": "a"}}


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (CALL, ("c1", "read")),
        ({**CALL, "type": "dynamic-tool", "toolName": "mine"}, ("c1", "mine")),
        ({**CALL, "type": "dynamic-tool"}, ("c1", "")),
        ({**CALL, "toolName": "another"}, ("c1", "read")),
        ({**CALL, "type": "data-x"}, (None, "")),
        ({**CALL, "toolCallId": 7}, (None, "")),
        ({"type": "tool-read"}, (None, "")),
        ({"type": "text", "text": "tool-read"}, (None, "")),
        ({}, (None, "")),
    ],
)
def test_a_call_is_known_by_its_kind_and_its_id(part: dict[str, Any], named: tuple[str | None, str]) -> None:
    """One rule for the tool's name, whatever else the part says."""
    row = PartRow("p", 0, part, 1, 1)
    assert (p.call_id_of(part), p.tool_name(part)) == (row.tool_call_id, p.tool_name(row.data)) == named


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({**CALL, "state": "output-available", "output": "done"}, "done"),
        ({**CALL, "state": "output-available", "output": {"n": 1}}, '{"n":1}'),
        ({**CALL, "state": "output-error", "errorText": "broke"}, "broke"),
        ({**CALL, "state": "output-denied", "approval": {"id": "a", "reason": "no"}}, "no"),
        ({**CALL, "state": "output-denied", "approval": "?"}, ""),
        (CALL, ""),
        ({"type": "text", "text": "x"}, ""),
    ],
)
def test_the_result_of_a_call_is_its_output_its_error_or_the_refusal(part: dict[str, Any], text: str) -> None:
    """What has no result has no text."""
    assert p.result_text(part) == text


def test_a_call_is_closed_without_what_nobody_answered() -> None:
    """Unknown keys stay, a yes stays, and the part that was given is not changed."""
    asked = {**CALL, "rawInput": "{", "inputEncoding": "json", "approval": {"id": "a"}, "mine": [1]}
    end = {"state": "output-error", "errorText": "gone"}
    before = dict(asked)
    assert p.close_call(asked, "gone") == {**CALL, **end, "mine": [1]}
    assert asked == before
    yes = {"id": "a", "approved": True}
    assert p.close_call({**CALL, "approval": yes}, "gone") == {**CALL, **end, "approval": yes}
    assert p.close_call({"type": "tool-x", "toolCallId": "c"}, "gone")["input"] == {}


CHILD = {"session_id": "ses_1", "steps": 2, "tokens": 30, "cost_usd": 0.5}


@pytest.mark.parametrize(
    ("report", "kept"),
    [
        ({**CHILD, "text": "hm", "tool": "read", "doing": "a.py"}, CHILD),
        ({"session_id": "ses_1"}, {"session_id": "ses_1"}),
        ({**CHILD, "steps": "x" * 1000, "tokens": True}, {"session_id": "ses_1", "cost_usd": 0.5}),
        ({**CHILD, "basket": 1}, {}),
        ({"session_id": 7}, {}),
        ({"steps": 2}, {}),
        ("ses_1", {}),
        (None, {}),
    ],
)
def test_only_what_is_told_of_a_subagent_is_kept_of_a_call_without_a_result(report: Any, kept: dict[str, Any]) -> None:
    """Its session, and numbers."""
    assert p.child_data(report) == kept


@pytest.mark.parametrize(
    ("part", "open_", "growing"),
    [
        (CALL, True, True),
        ({**CALL, "state": "output-available"}, False, False),
        ({**CALL, "state": "output-available", "preliminary": True}, True, True),
        ({"type": "text", "text": "", "state": "streaming"}, False, True),
        ({"type": "text", "text": "", "state": "done"}, False, False),
        ({"type": "data-x", "id": "1", "data": {}}, False, True),
        ({"type": "data-x", "data": {}}, False, False),
    ],
)
def test_what_is_open_and_what_may_still_grow(part: dict[str, Any], open_: bool, growing: bool) -> None:
    """Open is a call without a result; growing is anything of which more may come."""
    assert (p.is_open_call(part), p.is_growing(part)) == (open_, growing)


def test_a_file_names_a_blob_only_by_a_whole_digest() -> None:
    """And only a file does."""
    sha = "ab" * 32
    file = {"type": "file", "mediaType": "text/plain", "filename": "a.txt", "url": p.blob_url(sha)}
    assert (p.blob_of(file), p.media_type_of(file), p.file_name_of(file)) == (sha, "text/plain", "a.txt")
    assert p.blob_of({**file, "url": file["url"] + "0"}) is None
    assert p.blob_of({**file, "type": "text"}) is None
    assert p.clew_metadata_of({**file, "providerMetadata": {"clew": {"size": 3}}}, "size") == 3
    assert p.clew_metadata_of({**file, "providerMetadata": {"clew": 3}}, "size") is None


def test_text_is_read_from_parts_of_the_kind_that_was_asked_for() -> None:
    """A key of the wrong type reads as one that is not there."""
    parts = [p.text_part("a"), {"type": "reasoning", "text": "b"}, {"type": "text", "text": 3}, p.text_part("c")]
    assert p.texts_of(parts) == ["a", "c"]
    assert [p.text_of(part, "text", "reasoning") for part in parts] == ["a", "b", None, "c"]
    assert p.data_of({"type": "data-x", "data": {"a": 1}}, "data-x") == {"a": 1}
    assert p.data_of({"type": "data-x", "data": [1]}, "data-x") is None


def test_the_first_words_of_a_text_are_one_line() -> None:
    """Cut to a length, with a sign that there is more."""
    assert p.first_words("one\n two", 20) == "one two"
    assert p.first_words("one two three", 8) == "one two…"
    assert p.first_words("word " * 10_000, 12) == "word word w…"
