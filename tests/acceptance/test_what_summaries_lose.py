"""What a summary loses: facts planted in a long session, and asked for once it was compacted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clew.testing.scripted import ScriptedModel, call, say
from tests.integration.sent_files import file_part

from .compacting import Compacting, info, opened
from .planted import Attentive, Count, Fact, Facts, Worker, bring, no_summariser, sent_texts

Record = Callable[[str, object], None]
MODEL, RULE = "a model", "rule"


class Errand:
    """A long piece of work in which facts are planted: in what is asked, attached, said, called with and given back."""

    def __init__(self, by: str) -> None:
        self.facts = Facts()
        self.worker = Worker()
        self.outputs: list[str] = []
        self.summariser: ScriptedModel = Attentive(self.facts) if by == MODEL else no_summariser()

    def opened(self, folder: Path, window: int) -> Any:
        large = info("test/large", 10**7, tools=True)
        return opened(folder, self.worker, self.summariser, window=window, tools=[bring(self.outputs)], infos=[large])

    def prompt(self) -> Any:
        """What the user asks next, with a file."""
        attached = self.facts.message(2_000, "attached text", "number").encode()
        text = self.facts.message(900, "user", "order", "decision")
        return [{"type": "text", "text": text}, file_part(attached, "text/plain", "notes.txt")]

    def work(self, steps: int) -> None:
        """The model says something and looks something up, so many times."""
        for number in range(len(self.outputs), len(self.outputs) + steps):
            said = self.facts.message(500, "assistant", ("path", "decision", "number")[number % 3])
            why = self.facts.plant("decision", "arguments of a call")
            self.outputs.append(self.facts.output(6_000, number))
            self.worker.coming.append([say(said), call("look_up", {"number": number, "why": why})])

    async def counted(self, s: Compacting, facts: list[Fact], summaries: int) -> tuple[Count, set[str]]:
        """What became of them after so many summaries, and where those stood that were neither told nor sent."""
        request = self.worker.asked_with
        assert request is not None
        sent = "\n".join(sent_texts(request))
        parts = [part for message in await s.engine.messages(s.id, view="all") for part in message.parts]
        answers = {part["toolCallId"]: part["output"] for part in parts if "toolCallId" in part}
        told: set[str] = set()
        if isinstance(self.summariser, Attentive):
            told = told.union(*self.summariser.told[:summaries])
        unsent = [(n, fact) for n, fact in enumerate(facts) if fact.value not in sent]
        lost = [fact for n, fact in unsent if fact.value not in answers[f"ask{n}"]]
        known = sum(fact.text in told for fact in facts)
        assert [fact for _, fact in unsent if fact.kind == "order"] == []
        return (
            Count(len(facts), known, len(facts) - len(unsent), len(unsent) - len(lost), len(lost)),
            {fact.place for _, fact in unsent if fact.text not in told},
        )


def figure(where: str, by: str, summaries: int, count: Count) -> str:
    return (
        f"facts after {summaries} compaction{'s' * (summaries > 1)} {where} by {by}: {count.planted} planted, "
        f"{count.told} told to the summariser, {count.sent} sent, {count.recalled} recalled, {count.lost} lost"
    )


@pytest.mark.rule("CP-3", "CP-4")
@pytest.mark.parametrize(
    ("by", "compactions", "expected"),
    [
        (MODEL, 1, Count(24, 8, 24, 0, 0)),
        (RULE, 1, Count(24, 0, 18, 6, 0)),
        pytest.param(MODEL, 3, Count(72, 56, 72, 0, 0), marks=pytest.mark.slow),
        pytest.param(RULE, 3, Count(72, 0, 25, 47, 0), marks=pytest.mark.slow),
    ],
)
async def test_what_a_summary_between_turns_leaves_out_is_found_again_by_a_plain_question(
    tmp_path: Path, by: str, compactions: int, expected: Count, record_property: Record
) -> None:
    """Nothing is lost, however often and by whom it was summarised; orders are sent word for word."""
    errand = Errand(by)
    async with errand.opened(tmp_path, 100_000) as s:
        await s.begin()
        await s.allow("look_up")
        for _ in range(compactions):
            for _ in range(3):
                errand.work(1)
                await s.say(errand.prompt())
            assert (await s.engine.compact(s.id)).compacted
        facts = list(errand.facts.planted)
        errand.worker.ask(facts)
        await s.say("and now?", model="test/large")
        found, only_recalled = await errand.counted(s, facts, compactions)
        record_property("figure", figure("between turns", by, compactions, found))
        assert (found, only_recalled if by == MODEL else set()) == (expected, set())
        await s.is_sound()


@pytest.mark.rule("CP-3", "CP-4", "PR-4")
@pytest.mark.parametrize(
    ("by", "steps", "compactions", "expected"),
    [
        (MODEL, 6, 1, Count(36, 3, 27, 9, 0)),
        (RULE, 6, 1, Count(36, 0, 26, 10, 0)),
        pytest.param(MODEL, 16, 3, Count(86, 55, 73, 13, 0), marks=pytest.mark.slow),
        pytest.param(RULE, 16, 3, Count(86, 0, 20, 66, 0), marks=pytest.mark.slow),
    ],
)
async def test_what_a_summary_inside_a_turn_leaves_out_is_found_again_in_the_same_turn(
    tmp_path: Path, by: str, steps: int, compactions: int, expected: Count, record_property: Record
) -> None:
    """Only the middle of long outputs is told to nobody; the model asks while its message is still being made."""
    errand = Errand(by)
    async with errand.opened(tmp_path, 14_000) as s:
        await s.begin()
        await s.allow("look_up")
        await s.say(errand.prompt())
        errand.work(steps)
        prompt = errand.prompt()
        facts = list(errand.facts.planted)
        errand.worker.ask(facts)
        assert (await s.say(prompt)).status == "completed"
        # All that was asked for at once makes one more.
        made = len(await s.parts()) - 1
        found, only_recalled = await errand.counted(s, facts, made)
        record_property("figure", figure("inside a turn", by, made, found))
        assert (made, found) == (compactions, expected)
        # Of outputs that were stubs for long nothing is told; the middle of the others neither.
        assert by == RULE or only_recalled <= {f"{place} of an output" for place in ("start", "middle", "end")}
        await s.is_sound()
