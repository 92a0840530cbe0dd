"""The form of an answer: a turn may be asked to end in a value of a JSON Schema.

The model is given one more tool, whose arguments are that value; a call that fits ends the turn, and the value is
stored as a ``data-output`` part of the answer. Where a provider has a way of its own to ask for such a value, it is
asked for that way first, and tells what came as a call of that tool, so that everything after is the same. What does
not fit is told to the model, which tries again, by the tool, within limits. The schema is stored with the prompt, so
that whoever goes on with the turn asks for the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.errors import InvalidInput
from clew.tools.arguments import check_arguments
from clew.tools.base import DEFAULT_TIMEOUT_MS, ToolContext, ToolOutput
from clew.transcript.part import Part, kind_of, state_of
from clew.transcript.rule import Target

__all__ = ["MAX_REFUSED", "MAX_REMINDERS", "NO_ANSWER", "OUTPUT_DATA", "REMINDER", "AnswerForm", "refused_answers"]

OUTPUT_DATA: Final = "output"
MAX_REMINDERS: Final = 2
MAX_REFUSED: Final = 4
_NAME: Final = "final_answer"
_NAMED: Final = "urn:answer"
_REFERS_ELSEWHERE: Final = re.compile(rb'"\$ref":"(?!#/\$defs/)')
NO_ANSWER: Final = "the model gave no answer of the form that was asked for, and was told so"
REMINDER: Final = f"Give the answer by calling {_NAME}, whose arguments are the answer. It is not given before that."


class AnswerForm:
    """The tool that takes the answer of one turn; ``schema`` is what was asked for."""

    name = _NAME
    description = (
        "Give the final answer to the newest message: the arguments are the answer, and calling it ends your work on "
        "that message. Use the other tools before, as you need them; text alone does not count as the answer."
    )
    timeout_ms = DEFAULT_TIMEOUT_MS
    needs_workspace = False
    asks_human = False

    def __init__(self, schema: Mapping[str, Any]) -> None:
        # Arguments are an object; any other value is the one argument of it.
        self._wrapped = schema.get("type") != "object"
        if "$id" in schema or _REFERS_ELSEWHERE.search(msgspec.json.encode(schema)):
            # What its references begin at stays what it was: the schema itself, not what is put around it.
            inner, defs = {"$id": _NAMED, **schema}, {}
        else:
            defs = {"$defs": schema["$defs"]} if "$defs" in schema else {}
            inner = {key: value for key, value in schema.items() if key != "$defs"}
        around = {"type": "object", "properties": {"value": inner}, "required": ["value"], **defs}
        self.input_schema: Mapping[str, Any] = around if self._wrapped else dict(schema)
        problem = check_arguments(self.input_schema, {})
        if problem is not None and "its schema is not valid" in problem:
            raise InvalidInput(f"output is no JSON Schema: {problem.rpartition('not valid: ')[2]}")

    def value_of(self, args: Mapping[str, Any]) -> Any:
        return args["value"] if self._wrapped else args

    def targets(self, args: Mapping[str, Any], workspace: Path | None) -> Sequence[Target]:
        return ()

    async def execute(self, args: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput("taken")


def refused_answers(parts: Sequence[Part]) -> int:
    """How many answers of a message did not fit."""
    return sum(1 for part in parts if kind_of(part) == f"tool-{_NAME}" and state_of(part) == "output-error")
