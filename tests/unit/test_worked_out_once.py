"""What is worked out from a message once is what would be worked out from it anew, whatever it was worked out for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
import orjson
import pytest

from clew.compaction import prune
from clew.compaction.budget import (
    Measured,
    Ruler,
    Window,
    estimate_message,
    estimate_part,
    message_tokens,
    size_request,
)
from clew.compaction.policy import policy_for
from clew.compaction.prune import plan_prune
from clew.config import CompactionConfig, PruningConfig
from clew.providers.base import ModelRequest, ToolSchema
from clew.providers.evidence import encode_tools, request_digest, request_digest_like
from clew.transcript.file_rule import UNKNOWN, FileRule
from clew.transcript.line import LineTurn
from clew.transcript.message import Message, MessageRow, PartRow, copied
from clew.transcript.pruned import Pruned, pruned_through
from clew.transcript.session import Model
from clew.transcript.turn import Turn
from clew.transcript.view import Compaction, Split, model_view_at
from tests.rounds import rounds

_MODEL = Model("anthropic", "a-model")


def _part(chance: random.Random) -> dict[str, Any]:
    text = "word " * chance.randrange(60)
    call = {"type": "tool-bash", "toolCallId": f"call_{chance.randrange(10**6)}", "input": {"command": text[:30]}}
    seal = {"providerMetadata": {chance.choice(("anthropic", "openai")): {"signature": "s" * chance.randrange(90)}}}
    return chance.choice(
        [
            {"type": "step-start"},
            {"type": "text", "text": text},
            {"type": "reasoning", "text": text, **seal},
            {**call, "state": "output-available", "output": text},
            {**call, "state": "output-available", "output": {"text": text, "exit_code": 0}},
            {**call, "state": "output-error", "errorText": text},
            {"type": "file", "mediaType": "image/png", "url": "/api/blobs/" + "a" * 64, "filename": "a.png"},
            {"type": "file", "mediaType": "application/pdf", "url": "/api/blobs/" + "b" * 64, "filename": "b.pdf"},
            {"type": "data-note", "data": {"told": text}},
        ]
    )


def _messages(chance: random.Random) -> list[Message]:
    roles: Any = ("user", "assistant")
    found = [
        Message(f"m{n}", roles[n % 2], [_part(chance) for _ in range(chance.randrange(6))], {"turn_id": f"t{n // 2}"})
        for n in range(chance.randrange(2, 9))
    ]
    return found if chance.random() < 0.7 else [Message("s", "user", found[0].parts, {"summary": True}), *found]


def _ruler(chance: random.Random) -> Ruler:
    return Ruler(
        chance.randrange(1, 9),
        chance.randrange(4, 30),
        chance.choice((None, "anthropic", "openai")),
        chance.choice((UNKNOWN, FileRule(page=700))),
    )


def test_a_message_that_was_sized_before_is_as_large_as_one_that_was_not() -> None:
    """By any ruler, for any provider, in any order, and with what a provider has counted."""
    for seed in range(rounds(150)):
        chance = random.Random(seed)
        messages = _messages(chance)
        for _ in range(4):
            ruler, anew = _ruler(chance), [copied(message) for message in messages]
            by_part = [message_tokens(sum(estimate_part(part, ruler) for part in one.parts)) for one in anew]
            assert [estimate_message(one, ruler) for one in messages] == by_part
            chosen = chance.choice(messages)
            measured = chance.choice((None, Measured(chosen.id, chance.randrange(len(chosen.parts) + 1), 500)))
            known, fresh = (
                size_request(system_chars=90, tools_chars=70, messages=each, measured=measured, ruler=ruler)
                for each in (messages, anew)
            )
            assert known == fresh


def test_a_row_is_sent_as_the_cut_and_the_prunes_of_the_moment_have_it() -> None:
    """The same value while they are the same; another one, made anew, as soon as one of them touches it."""
    for seed in range(rounds(150)):
        chance = random.Random(seed)
        line = [
            _turn(n, [_row(f"m{n}-{k}", role, chance) for k, role in enumerate(("user", "assistant"))], chance)
            for n in range(4)
        ]
        for _ in range(6):
            prunes = pruned_through(
                Pruned(1, f"m{chance.randrange(4)}-1", chance.randrange(4), 9, chance.choice((0, 3)), 1)
                for _ in range(chance.randrange(3))
            )
            cut = chance.choice((None, Split(f"m{chance.randrange(4)}-1", chance.randrange(4))))
            marker = MessageRow("marker", "s", "assistant", 0, 0, {})
            compaction = None if cut is None else Compaction(marker, "t9", "told", None, cut)
            sent = model_view_at(line, compaction, prunes)
            # The same rows in turns that nothing was noted with yet.
            assert sent == model_view_at([LineTurn(one.turn, one.messages) for one in line], compaction, prunes)
            for one, again in zip(sent, model_view_at(line, compaction, prunes), strict=True):
                assert one is again or one.is_summary


def _turn(n: int, rows: Sequence[MessageRow], chance: random.Random) -> LineTurn:
    data = chance.choice(({}, {"environment": "It is late."}, {"unsent": [{"message_id": rows[1].id, "from_part": 1}]}))
    turn = Turn(id=f"t{n}", session_id="s", parent_turn_id=None, created_at=0, status="completed", data=data)
    return LineTurn(turn, tuple(rows))


def _row(id_: str, role: Any, chance: random.Random) -> MessageRow:
    parts = tuple(PartRow(f"{id_}-{n}", n, _part(chance), 0, 0) for n in range(chance.randrange(1, 5)))
    return MessageRow(id_, "s", role, 0, 0, {"damaged": "it is"} if chance.random() < 0.1 else {}, parts)


def test_a_request_has_the_digest_of_what_it_holds_and_one_of_an_older_clew_still_proves_it() -> None:
    """A changed message is another value; the older digest was over all messages in one."""
    for seed in range(rounds(60)):
        chance = random.Random(seed)
        request = ModelRequest(
            model=_MODEL, system="Be brief.", messages=_messages(chance), tools=(ToolSchema("a", "b", {}),)
        )
        anew = msgspec.structs.replace(request, messages=[copied(message) for message in request.messages])
        digest = request_digest(request)
        assert (request_digest(request), request_digest(anew)) == (digest, digest)
        changed = msgspec.structs.replace(
            request.messages[-1], parts=[*request.messages[-1].parts, {"type": "text", "text": "!"}]
        )
        assert request_digest(msgspec.structs.replace(request, messages=[*request.messages[:-1], changed])) != digest
        form = {
            "model": ["anthropic", "a-model", None],
            "system": "Be brief.",
            "tools": encode_tools(request.tools),
            "messages": [{"role": one.role, "parts": one.parts} for one in request.messages],
            "max_output_tokens": None,
            "temperature": None,
        }
        older = sha256(orjson.dumps(form, option=orjson.OPT_SORT_KEYS)).hexdigest()
        told = [request_digest_like(request, recorded) for recorded in (older, digest, None, "0" * 64)]
        assert told == [older, digest, digest, digest]


class _Usual(msgspec.Struct):
    unit: str = "ms"


def test_tools_are_encoded_as_they_always_were() -> None:
    """The digests of steps that are stored go by that text, whatever a host puts into a schema."""
    schema = {"type": "object", "properties": {"b": {"enum": (1, 2.5, 1e22, None)}, "a": {"default": _Usual()}}}
    tools = [ToolSchema("look_up", "Looks up a \u00e9, a \u2028 and a \x01.", schema), ToolSchema("none", "", {})]
    plain = [msgspec.to_builtins(tool) for tool in tools]
    assert encode_tools(tools) == orjson.dumps(plain, option=orjson.OPT_SORT_KEYS).decode()


@pytest.mark.rule("PR-1")
def test_outputs_are_not_looked_at_below_the_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far below it a prune costs nothing, however long the session is."""
    looked: list[int] = []
    whole = prune._outputs

    def outputs(*args: Any) -> Any:
        looked.append(1)
        return whole(*args)

    monkeypatch.setattr(prune, "_outputs", outputs)
    policy = policy_for(CompactionConfig(preset="guide"), PruningConfig(), None)
    messages = _messages(random.Random(3))
    planned = [
        plan_prune(messages, policy, used=used, window=Window(1000, 0, 1000), at=1, already={}, base_index={})
        for used in (9, 999)
    ]
    assert (planned, looked) == ([(), ()], [1])
