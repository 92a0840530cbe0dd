"""The forms of a document: what is written is read back, and what is not a document is refused with its place."""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from clew.errors import InvalidInput, UnsupportedValue
from clew.ids import Mint
from clew.interop import ExportFormat
from clew.interop.formats import FORMATS, format_session
from clew.interop.session_file import format_json, format_jsonl, iter_jsonl, parse_session
from clew.testing.clock import FakeClock
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.portable import Blob, PortableSession, Prompt, Queued
from clew.transcript.pruned import Pruned
from clew.transcript.session import Model, Session
from clew.transcript.turn import HeadMove, Step, Turn
from clew.transcript.usage import Usage

MODEL = Model("demo", "echo", "slow")
MINT = Mint(FakeClock(1_750_000_000_000), random.Random(7).randrange)
SES = MINT.session()
MSG = [MINT.message() for _ in range(4)]
TRN = [MINT.turn() for _ in range(3)]
PRT = [MINT.part() for _ in range(4)]
CALL = {"type": "tool-ls", "toolCallId": "c1", "state": "output-available", "input": {"z": 1, "a": 2}, "output": "x"}


def kept(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def sample() -> PortableSession:
    """A document with something of every kind."""
    text = {"type": "text", "text": "hi", "unknown": {"key": [1, 2.5, None, True, "ü"]}}
    odd = {"type": "data-odd", "whatever": -1}
    return PortableSession(
        exported_at=9,
        redacted=2,
        session=Session(
            id=SES,
            agent="assistant",
            model=MODEL,
            created_at=1,
            updated_at=2,
            head_turn_id=TRN[0],
            metadata={"title": "t", "x": {"y": []}},
            total_tokens=3,
            cost_usd=0.25,
        ),
        turns=(
            Turn(id=TRN[0], session_id=SES, parent_turn_id=None, created_at=1, status="completed"),
            Turn(
                id=TRN[1],
                session_id=SES,
                depth=1,
                parent_turn_id=TRN[0],
                created_at=2,
                status="aborted",
                origin_turn_id=TRN[2],
                settled_at=3,
                data={"stopped": "x"},
            ),
        ),
        links={TRN[0]: tuple(MSG[:2]), TRN[1]: (MSG[0],)},
        messages=(
            MessageRow(MSG[0], SES, "user", 1, 1, {}, (PartRow(PRT[0], 0, text, 1, 1),)),
            MessageRow(
                MSG[1],
                SES,
                "assistant",
                2,
                2,
                {"usage": {"input": 2, "output": 1}},
                (PartRow(PRT[1], 0, CALL, 1, 1), PartRow("", 1, odd, 1, 1)),
            ),
            MessageRow(MSG[2], SES, "user", 3, 3, {"queued_at": 3}),
            MessageRow(MSG[3], SES, "user", 4, 4, {"cancelled_at": 4}),
        ),
        steps=(
            Step(
                turn_id=TRN[0],
                index=0,
                message_id=MSG[1],
                usage=Usage(2, 1),
                model=MODEL,
                started_at=1,
                finished_at=2,
                prompt_digest=kept("be kind"),
                cost_usd=0.25,
                data={"view": [None, 0]},
            ),
        ),
        moves=(
            HeadMove(1, SES, None, TRN[1], 3, "turn"),
            HeadMove(2, SES, TRN[1], None, 4, "rewind"),
            HeadMove(3, SES, None, TRN[0], 5, "goto"),
        ),
        prunes=(Pruned(1, MSG[1], 0, 9, 0, 7), Pruned(2, MSG[1], 0, 9, 4, 8)),
        prompts=(Prompt(kept("be kind"), "be kind"),),
        blobs=(Blob(sha256(b"\x00\xff").hexdigest(), "image/png", b"\x00\xff"),),
        queue=(Queued(MSG[2], 3, True),),
    )


@pytest.mark.rule("ST-5")
@pytest.mark.parametrize("form", [format_json, format_jsonl])
def test_a_document_is_read_back_as_it_was(form: Callable[[PortableSession], bytes]) -> None:
    """Unknown keys, unknown parts, bytes and numbers included."""
    assert parse_session(form(sample())) == sample()


@pytest.mark.parametrize("form", [format_json, format_jsonl])
def test_what_is_written_is_the_same_bytes_again_and_again(form: Callable[[PortableSession], bytes]) -> None:
    """Also after it was read, and whatever order the keys of metadata came in."""
    written = form(sample())
    assert form(parse_session(written)) == written
    turned = msgspec.structs.replace(
        sample(), session=msgspec.structs.replace(sample().session, metadata={"x": {"y": []}, "title": "t"})
    )
    assert form(turned) == written


def test_the_keys_of_json_are_sorted_and_those_of_a_part_stay() -> None:
    """A pruned output is cut from its JSON, so the order inside a part is part of its value."""
    document = msgspec.json.decode(format_json(sample()))
    assert list(document) == sorted(document)
    assert list(document["session"]) == sorted(document["session"])
    assert list(document["messages"][1]["parts"][0]["data"]) == list(CALL)
    assert list(document["messages"][1]["parts"][0]["data"]["input"]) == ["z", "a"]
    assert format_json(sample()).count(b"\n") == 1


def test_lines_begin_with_their_kind() -> None:
    """The header first, with the number of records that follow."""
    lines = [msgspec.json.decode(line) for line in iter_jsonl(sample())]
    assert [next(iter(line.items())) for line in lines] == [
        ("record", name)
        for name in (
            *("header", "session", "turn", "turn", "message", "message", "message", "message", "step"),
            *("move", "move", "move", "prune", "prune", "prompt", "blob", "queued"),
        )
    ]
    assert lines[0]["records"] == len(lines) - 1


def test_a_torn_last_line_is_refused_with_its_number() -> None:
    """As is a file that ends between two lines."""
    lines = list(iter_jsonl(sample()))
    with pytest.raises(InvalidInput, match=f"line {len(lines)} is not JSON"):
        parse_session(b"".join(lines)[:-5])
    with pytest.raises(InvalidInput, match="the file is truncated"):
        parse_session(b"".join(lines[:-1]))
    assert parse_session(b"".join(lines)[:-1]) == sample()


def test_a_document_cut_anywhere_is_refused() -> None:
    """Never a crash, never half a session."""
    for form in (format_json, format_jsonl):
        written = form(sample())
        for end in range(0, len(written) - 1, 7):
            with pytest.raises((InvalidInput, UnsupportedValue)):
                parse_session(written[:end])


Change = Callable[[dict[str, Any]], None]


def _set(*path: Any, to: Any) -> Change:
    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return change


def _again(*path: Any) -> Change:
    """A record of the list there, twice."""

    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for step in path:
            place = place[step]
        place.append(place[0])

    return change


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


GARBAGE: list[tuple[str, Change]] = [
    ("another format", _set("format", to="chatgpt")),
    ("a later version", _set("version", to=2)),
    ("no session", _set("session", to=None)),
    ("messages of the wrong type", _set("messages", to={"a": 1})),
    ("a time in words", _set("session", "created_at", to="yesterday")),
    ("a time before all times", _set("session", "created_at", to=-1)),
    ("a time after all times", _set("session", "created_at", to=2**60)),
    ("an id that is a path", _set("session", "id", to="../../etc/passwd")),
    ("an id with a newline", _set("session", "id", to=SES + "\n")),
    ("an id of 10 kB", _set("messages", 0, "id", to="msg_" + "0" * 10_000)),
    ("an id of another kind", _set("messages", 0, "id", to=TRN[0])),
    ("a turn id that is a path", _set("turns", 0, "id", to="trn_/../../../../../../../../etc")),
    ("a part id that is none", _set("messages", 0, "parts", 0, "id", to="prt_../x")),
    ("a parent session that is a path", _set("session", "parent_id", to="/tmp")),
    ("a parent message that is none", _set("session", "parent_message_id", to="m.")),
    ("an origin that is none", _set("turns", 0, "origin_turn_id", to="x")),
    ("a message twice", _again("messages")),
    ("a turn twice", _again("turns")),
    ("a step twice", _again("steps")),
    ("a queue entry twice", _again("queue")),
    ("a part id twice", _set("messages", 1, "parts", 0, "id", to=PRT[0])),
    ("an unknown role", _set("messages", 0, "role", to="root")),
    ("an unknown status", _set("turns", 0, "status", to="done")),
    ("an unknown kind of turn", _set("turns", 0, "kind", to="odd")),
    ("an unknown reason to move", _set("moves", 0, "why", to="because")),
    ("an unknown state of a call", _set("messages", 1, "parts", 0, "data", "state", to="finished")),
    ("a turn that is its own parent", _set("turns", 0, "parent_turn_id", to=TRN[0])),
    ("a cycle", _set("turns", 0, "parent_turn_id", to=TRN[1])),
    ("a parent that is not there", _set("turns", 1, "parent_turn_id", to=TRN[2])),
    ("a foreign message in a turn", _set("turns", 0, "messages", 0, to=MINT.message())),
    ("a message twice in a turn", _set("turns", 0, "messages", 1, to=MSG[0])),
    ("a message nowhere", _set("queue", to=[])),
    ("a message in a turn and queued", _set("queue", 0, "message_id", to=MSG[0])),
    ("a queued answer", _set("queue", 0, "message_id", to=MSG[1])),
    ("a head that is not there", _set("session", "head_turn_id", to=TRN[2])),
    ("a head its moves do not end at", _set("session", "head_turn_id", to=TRN[1])),
    ("a move to what is not there", _set("moves", 0, "to_turn_id", to=TRN[2])),
    ("a step of a foreign turn", _set("steps", 0, "turn_id", to=TRN[2])),
    ("a step of a user's message", _set("steps", 0, "message_id", to=MSG[0])),
    ("a step of no number", _set("steps", 0, "index", to=-1)),
    ("a usage below nothing", _set("steps", 0, "usage", "input", to=-1)),
    ("a usage beyond everything", _set("steps", 0, "usage", "input", to=2**62)),
    ("a message's usage beyond everything", _set("messages", 1, "metadata", "usage", "input", to=2**62)),
    ("a cost below nothing", _set("steps", 0, "cost_usd", to=-1.0)),
    ("a prune of a text", _set("prunes", 0, "message_id", to=MSG[0])),
    ("a prune of no part", _set("prunes", 0, "part", to=9)),
    ("a prune out of order", _set("prunes", 0, "seq", to=2)),
    ("a prompt under a wrong digest", _set("prompts", 0, "body", to="be evil")),
    ("a blob under a wrong digest", _set("blobs", 0, "data", to="AAAA")),
    ("a blob that is no base64", _set("blobs", 0, "data", to="€")),
    ("a blob of no type", _set("blobs", 0, "media_type", to="text/html\r\nx: y")),
    ("a client id of no length", _set("messages", 0, "metadata", to={"client_message_id": ""})),
    ("a client id with a control", _set("messages", 0, "metadata", to={"client_message_id": "a\x1b"})),
    ("a title that is no text", _set("session", "metadata", "title", to=["x"])),
    ("a title of a book's length", _set("session", "metadata", "title", to="x" * 501)),
    ("metadata that is no object", _set("messages", 0, "metadata", to=[])),
    ("a part that is no object", _set("messages", 0, "parts", 0, "data", to="x")),
    ("U+0000 in a part", _set("messages", 0, "parts", 0, "data", "text", to="a\x00b")),
    ("U+0000 in a key", _set("messages", 0, "parts", 0, "data", "a\x00", to=1)),
    ("U+0000 in a prompt", _set("prompts", 0, to={"digest": kept("\x00"), "body": "\x00"})),
    ("a number beyond 64 bits", _set("messages", 0, "parts", 0, "data", "n", to=2**63)),
    ("a number far beyond 64 bits", _set("session", "metadata", "n", to=10**80)),
    ("a part too deep", _set("messages", 0, "parts", 0, "data", "n", to=_nested(201))),
    ("metadata far too deep", _set("session", "metadata", "n", to=_nested(300))),
    ("an agent with U+0000", _set("session", "agent", to="a\x00")),
    ("a model that is none", _set("session", "model", to="demo/echo")),
]


@pytest.mark.rule("ST-4", "ID-3")
@pytest.mark.parametrize(("what", "change"), GARBAGE, ids=[what for what, _ in GARBAGE])
def test_garbage_is_refused_in_a_sentence(what: str, change: Change) -> None:
    """One wrong thing is enough, and nothing of the file gets any further."""
    document = msgspec.json.decode(format_json(sample()))
    change(document)
    with pytest.raises((InvalidInput, UnsupportedValue)) as caught:
        parse_session(msgspec.json.encode(document))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"null",
        b"[]",
        b'"clew-session"',
        b"\xff\xfe\x00",
        b"NaN",
        b'{"format":"clew-session","version":1,"exported_at":NaN}',
        b'{"format":"clew-session","version":1,"exported_at":1e999}',
        b'{"format":"clew-session","version":1,"exported_at":' + b"9" * 5000 + b"}",
        b'{"format":"clew-session","version":1,"exporter":"\\ud800"}',
        b'{"format":"clew-session","version":1}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"record":"header"}',
        b'{"record":"session"}\n',
        b'{"record":"header","format":"clew-session","version":1,"exporter":"x","exported_at":1,"records":0}',
        b'{"record":"header","format":"clew-session","version":3,"exporter":"x","exported_at":1,"records":0}',
        b'{"record":"header","format":"clew-session","version":1,"exporter":"x","exported_at":1,"records":1}\n{"record":"pickle"}',
        b'{"record":"header","format":"clew-session","version":1,"exporter":"x","exported_at":1,"records":1}\n[1]',
    ],
    ids=range(20),
)
def test_what_is_no_document_at_all_is_refused(data: bytes) -> None:
    """Depth, odd numbers and broken text end in a sentence, not in a crash."""
    with pytest.raises((InvalidInput, UnsupportedValue)):
        parse_session(data)


@pytest.mark.rule("ST-4")
@pytest.mark.parametrize("value", [b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b'"\\ud800"'], ids=range(5))
@pytest.mark.parametrize("form", [format_json, format_jsonl])
def test_a_value_that_no_store_can_keep_is_told_from_what_is_no_json(
    form: Callable[[PortableSession], bytes], value: bytes
) -> None:
    """In both forms the same code as everywhere else."""
    document = sample()
    session = msgspec.structs.replace(document.session, metadata={"note": "HERE"})
    data = form(msgspec.structs.replace(document, session=session))
    with pytest.raises(UnsupportedValue):
        parse_session(data.replace(b'"HERE"', value))
    with pytest.raises(InvalidInput):
        parse_session(data.replace(b'"HERE"', b"HERE"))


def test_a_second_open_turn_and_one_off_the_line_are_refused() -> None:
    """At most one turn is open, and it hangs under the head."""
    document = sample()
    first, second = document.turns
    open_ = msgspec.structs.replace(second, status="running", settled_at=None)
    parse_session(format_json(msgspec.structs.replace(document, turns=(first, open_))))
    both = (msgspec.structs.replace(first, status="waiting"), open_)
    with pytest.raises(InvalidInput, match="a second turn is open"):
        parse_session(format_json(msgspec.structs.replace(document, turns=both)))
    away = msgspec.structs.replace(
        document,
        turns=(first, open_),
        moves=(*document.moves, HeadMove(4, SES, TRN[0], None, 9, "rewind")),
        session=msgspec.structs.replace(document.session, head_turn_id=None),
    )
    with pytest.raises(InvalidInput, match="neither the head nor its child"):
        parse_session(format_json(away))


def test_an_export_is_redacted_unless_asked_otherwise() -> None:
    """In every form; the two that carry the session are read back."""
    secret = "sk-live-0123456789abcdef"
    user, *rest = sample().messages
    told = msgspec.structs.replace(
        user, parts=(msgspec.structs.replace(user.parts[0], data={"type": "text", "text": secret}),)
    )
    document = msgspec.structs.replace(sample(), redacted=0, messages=(told, *rest))
    for name in FORMATS:
        assert secret.encode() in format_session(document, name, redact=False)
        assert secret.encode() not in format_session(document, name)
        assert b"[redacted: secret]" in format_session(sample(), name, secrets=["hi"]).replace(b"\\", b"")
    carrying: tuple[ExportFormat, ...] = ("json", "jsonl")
    for name in carrying:
        assert parse_session(format_session(document, name, redact=False)) == document
        assert parse_session(format_session(document, name)).redacted == 1


def test_a_mark_at_the_beginning_of_a_file_is_passed_over() -> None:
    """Some editors write one."""
    for form in (format_json, format_jsonl):
        assert parse_session(b"\xef\xbb\xbf" + form(sample())) == sample()


def test_a_file_over_the_limit_is_refused_unread() -> None:
    """The limit is on bytes, before anything is parsed."""
    with pytest.raises(UnsupportedValue, match="larger than 10 bytes"):
        parse_session(b"x" * 11, max_bytes=10)
