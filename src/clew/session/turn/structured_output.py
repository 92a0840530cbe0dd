"""Structured output: a turn may have to end in a value that matches a JSON Schema.

The model gets one more tool whose arguments are that value; a valid call ends the turn, and the value is stored as a
``data-output`` part of the answer. A provider with native structured output is asked that way first and reports the
value as a call of this tool, so everything after it is the same. Invalid values are reported to the model, which tries
again with the tool, within limits. The schema is stored with the prompt, so a resumed turn uses the same one.
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

__all__ = [
    "MAX_REFUSED",
    "MAX_REMINDERS",
    "NO_ANSWER",
    "OUTPUT_DATA",
    "REMINDER",
    "StructuredOutput",
    "refused_answers",
]

OUTPUT_DATA: Final = "output"
MAX_REMINDERS: Final = 2
MAX_REFUSED: Final = 4
_NAME: Final = "final_answer"
_SCHEMA_ID: Final = "urn:answer"
_EXTERNAL_REF: Final = re.compile(rb'"\$ref":"(?!#/\$defs/)')
NO_ANSWER: Final = "the model did not return the requested structured output, even after reminders"
REMINDER: Final = f"Give the answer by calling {_NAME}, whose arguments are the answer. It is not given before that."


class StructuredOutput:
    """The tool that receives the final answer of one turn. ``schema`` is the requested JSON Schema."""

    name = _NAME
    description = (
        "Give the final answer to the newest message: the arguments are the answer, and calling it ends your work on "
        "that message. Use the other tools before, as you need them; text alone does not count as the answer."
    )
    timeout_ms = DEFAULT_TIMEOUT_MS
    needs_workspace = False
    asks_human = False

    def __init__(self, schema: Mapping[str, Any]) -> None:
        # Arguments must be an object; any other value is wrapped as the only property of one.
        self._wrapped = schema.get("type") != "object"
        if "$id" in schema or _EXTERNAL_REF.search(msgspec.json.encode(schema)):
            # References must resolve against the schema itself, not against the wrapper.
            inner, defs = {"$id": _SCHEMA_ID, **schema}, {}
        else:
            defs = {"$defs": schema["$defs"]} if "$defs" in schema else {}
            inner = {key: value for key, value in schema.items() if key != "$defs"}
        around = {"type": "object", "properties": {"value": inner}, "required": ["value"], **defs}
        self.input_schema: Mapping[str, Any] = around if self._wrapped else dict(schema)
        problem = check_arguments(self.input_schema, {})
        if problem is not None and "its schema is not valid" in problem:
            raise InvalidInput(f"output is not a valid JSON Schema: {problem.rpartition('not valid: ')[2]}")

    def value_of(self, args: Mapping[str, Any]) -> Any:
        return args["value"] if self._wrapped else args

    def targets(self, args: Mapping[str, Any], workspace: Path | None) -> Sequence[Target]:
        return ()

    async def execute(self, args: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput("taken")


def refused_answers(parts: Sequence[Part]) -> int:
    """Return how many answers of a message did not match the schema."""
    return sum(1 for part in parts if kind_of(part) == f"tool-{_NAME}" and state_of(part) == "output-error")
