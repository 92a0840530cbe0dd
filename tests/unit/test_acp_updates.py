"""What an editor is sent of a message: each text once and whole, each call as it changes and once as it ends."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

import pytest

from clew.fronts.acp.updates import UpdateSender
from clew.transcript import chunk as c
from clew.transcript import part as p
from clew.transcript.fold import Fold
from clew.transcript.replay import replay
from tests.rig.streams import stepped_stream
from tests.rounds import rounds

pytestmark = [pytest.mark.rule("AC-2"), pytest.mark.rule("SR-2")]


async def no_blob(sha256: str) -> bytes | None:
    return None


@pytest.mark.parametrize("seeds", [range(n, n + rounds(40)) for n in range(0, 4_000, 1_000)])
async def test_however_a_message_comes_an_editor_is_sent_each_part_once(seeds: range) -> None:
    """By chunks, by streams that begin again, and by what is stored, in any mixture."""
    for seed in seeds:
        sent: list[dict[str, Any]] = []

        async def send(update: dict[str, Any], into: list[dict[str, Any]] = sent) -> None:
            into.append(update)

        sender, chance = UpdateSender(send, no_blob, None, shows_compaction=False), Random(seed)
        # Sources and files are sent as blocks under the id of their message, like its first text.
        left_out = (c.Start, c.SourceUrl, c.SourceDocument, c.File, c.Data)
        chunks = [c.Start("m1"), *(one for one in stepped_stream(seed) if not isinstance(one, left_out))]
        stored, place, is_behind = Fold("m1"), 0, False
        while place < len(chunks):
            until = min(len(chunks), place + chance.randint(1, 12))
            for chunk in chunks[place:until]:
                stored.apply(chunk)
            way = chance.randrange(3) if place else 0
            if way == 1:
                is_behind = await sender.send_message("m1", "assistant", stored.parts) or is_behind
            elif way == 2 or is_behind:
                whole = [*replay(stored.message(), open_ids=stored.open_ids)]
                for one in whole[:-1]:
                    await sender.send_chunk("m1", one, None)
                await sender.send_chunk("m1", whole[-1], "m1:9")
                is_behind = False
            else:
                for one in chunks[place:until]:
                    await sender.send_chunk("m1", one, "m1:9")
            place = until
        await sender.send_message("m1", "assistant", stored.parts)
        texts: dict[tuple[str, str], str] = defaultdict(str)
        for update in sent:
            if update["sessionUpdate"] in ("agent_message_chunk", "agent_thought_chunk") and "messageId" in update:
                texts[update["sessionUpdate"], update["messageId"]] += update["content"].get("text", "")
        wanted = [part["text"] for part in stored.parts if p.kind_of(part) in ("text", "reasoning") and part["text"]]
        assert sorted(text for text in texts.values() if text in wanted) == sorted(wanted), seed
        for part in stored.parts:
            if p.is_call(part):
                mine = [one for one in sent if one.get("toolCallId") == p.call_id_of(part)]
                assert [one["sessionUpdate"] for one in mine] == ["tool_call"] + ["tool_call_update"] * (len(mine) - 1)
                ends = [one for one in mine if one.get("status") in ("completed", "failed")]
                is_over = str(p.state_of(part)).startswith("output-") and not p.is_preliminary(part)
                assert len(ends) == is_over, (seed, part)
