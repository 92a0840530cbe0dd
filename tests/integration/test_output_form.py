"""Structured output: a turn that is asked for a value of a schema ends in one, or has failed and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

import clew
from clew.testing.scripted import Gate, ScriptedModel, call, say, wait
from tests.integration.http_client import served

pytestmark = [pytest.mark.anyio, pytest.mark.rule("EM-6")]


class Verdict(msgspec.Struct):
    stars: Annotated[int, msgspec.Meta(ge=1, le=5)]
    why: str


GOOD = {"stars": 4, "why": "It is quick."}


@clew.tool
def look() -> str:
    """Look."""
    return "quick"


async def test_the_answer_comes_in_the_type_that_was_asked_for_after_tools_and_a_misfit(tmp_path: Path) -> None:
    """It is stored as a data part, what did not fit was told to the model, and all of it was booked."""
    model = ScriptedModel([call("look", {}), call("final_answer", {"stars": 9, "why": ""}), call("final_answer", GOOD)])
    rules = [clew.Rule("look", "*", "allow")]
    url = f"sqlite:///{tmp_path}/t.db"
    async with clew.open(url, tools=[look], rules=rules, providers={"test": model}) as engine:
        session = await engine.create_session()
        started = await engine.start(session.id, "How is it?", output=Verdict)
        chunks = [chunk async for chunk in started]
        verdict: Verdict = await started.output()
        assert verdict == Verdict(4, "It is quick.")
        assert [chunk["data"] for chunk in chunks if chunk["type"] == "data-output"] == [GOOD]
        stored = (await engine.messages(session.id))[-1]
        assert [part["data"] for part in stored.parts if part["type"] == "data-output"] == [GOOD]
        [error_text] = [part["errorText"] for part in stored.parts if part.get("state") == "output-error"]
        assert "at stars:" in error_text
        assert (await engine.get_session(session.id)).spend.calls == 3
        assert model.requests[0].tools[-1].input_schema["properties"]["stars"]["maximum"] == 5
        # The next turn is as any other.
        model.add(say("Yes."))
        await (await engine.submit(session.id, "Sure?")).wait()
        assert "final_answer" not in [schema.name for schema in model.requests[-1].tools]
    async with clew.open(url, read_only=True) as engine:
        assert [part["data"] for part in (await engine.messages(session.id))[1].parts if "data" in part] == [GOOD]


async def test_a_model_that_only_talks_is_reminded_and_then_the_turn_has_failed() -> None:
    """Twice; a value that is no object is asked for as one, and handed out as what it is."""
    model = ScriptedModel([say("Four, I think."), call("final_answer", {"value": [4, 5]})])
    async with clew.open("memory:", providers={"test": model}) as engine:
        session = await engine.create_session()
        started = await engine.start(session.id, "Which?", output=list[int])
        assert await started.output() == [4, 5]
        assert "calling final_answer" in model.requests[1].messages[-1].texts[-1]
        model.add(say("Four."), say("Four!"), say("It is four."))
        stubborn = await engine.start(session.id, "And now?", output={"type": "integer"})
        with pytest.raises(clew.ModelFailed, match="did not return the requested structured output"):
            await stubborn.output()
        assert (await stubborn.wait()).status == "failed"
        model.add(*[call("final_answer", {"value": f"x{n}"}) for n in range(4)])
        wrong = await engine.start(session.id, "Once more", output={"type": "integer"})
        with pytest.raises(clew.ModelFailed, match="did not return the requested structured output"):
            await wrong.output()
        with pytest.raises(clew.InvalidInput, match="not a valid JSON Schema"):
            await engine.start(session.id, "x", output={"type": "nothing"})


@pytest.mark.parametrize(
    ("schema", "wrong", "right"),
    [
        ({"type": "array", "items": {"$ref": "#"}}, [{"value": []}], [[], [[]]]),
        ({"items": {"$ref": "#/definitions/n"}, "definitions": {"n": {"type": "integer"}}}, ["x"], [7]),
        ({"$id": "https://example.org/n", "$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, "x", 7),
    ],
)
async def test_references_of_a_schema_begin_at_the_schema_that_was_given(schema: Any, wrong: Any, right: Any) -> None:
    """Also where it is no object, and so has to be the one argument of a call."""
    model = ScriptedModel([call("final_answer", {"value": wrong}), call("final_answer", {"value": right})])
    async with clew.open("memory:", providers={"test": model}) as engine:
        session = await engine.create_session()
        assert await (await engine.start(session.id, "Which?", output=schema)).output() == right


async def test_a_turn_that_was_cut_off_still_wants_its_form(tmp_path: Path) -> None:
    """Another process goes on with it: the schema is stored with the prompt, and nothing of it is lost."""
    url = f"sqlite:///{tmp_path}/t.db"
    gate = Gate()
    first = ScriptedModel([[say("Let me see"), wait(gate)]])
    async with clew.open(url, providers={"test": first}) as engine:
        session = await engine.create_session()
        await engine.start(session.id, "How is it?", output=Verdict)
        await gate.reached.wait()
    second = ScriptedModel([call("final_answer", GOOD)])
    async with clew.open(url, providers={"test": second}) as engine:
        outcome = await (await engine.continue_turn(session.id)).wait()
        assert outcome.status == "completed"
        stored = (await engine.messages(session.id))[-1]
        assert [part["data"] for part in stored.parts if part["type"] == "data-output"] == [GOOD]


async def test_over_http_a_prompt_names_its_schema() -> None:
    """And one that is no schema is refused before anything is stored."""
    schema: dict[str, Any] = {"type": "object", "properties": {"stars": {"type": "integer"}}, "required": ["stars"]}
    async with served(call("final_answer", {"stars": 2})) as client:
        session = await client.session()
        refused = await client.post(f"/api/sessions/{session}/prompt", {"text": "x", "output": {"type": 7}})
        assert (refused.status, refused.code) == (422, "invalid_input")
        assert (await client.post(f"/api/sessions/{session}/prompt", {"text": "x", "output": schema})).status == 202
        await client.idle(session)
        [_, told] = await client.messages(session)
        assert [part["data"] for part in told["parts"] if part["type"] == "data-output"] == [{"stars": 2}]
