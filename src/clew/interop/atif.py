"""Export as a trajectory of ATIF (Agent Trajectory Interchange Format), which evaluation tools such as Harbor read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from clew._version import __version__
from clew.errors import InvalidInput
from clew.interop.export_sections import Passage, left_out, passages_of
from clew.transcript import part as p
from clew.transcript.iso_time import iso
from clew.transcript.message import MessageRow
from clew.transcript.model_call import sum_usage
from clew.transcript.part import Part
from clew.transcript.portable import PortableSession
from clew.transcript.turn import Step
from clew.transcript.usage import Usage
from clew.transcript.view import compaction_data

__all__ = ["format_atif"]

_SCHEMA_VERSION: Final = "ATIF-v1.7"
"""Validators know their own version and older ones."""


def format_atif(portable: PortableSession, *, hidden: bool = False) -> bytes:
    """Return the session as one trajectory: a step for each prompt and each model call, with its calls and results.

    Bytes of files are left out: a trajectory refers to images by path only.
    """
    shown = passages_of(portable, hidden=hidden)
    recorded: dict[str, list[Step]] = {}
    for step in portable.steps:
        recorded.setdefault(step.message_id, []).append(step)
    steps = [one for passage in shown for one in _steps(passage, recorded.get(passage.row.id, ()))]
    if not steps:
        raise InvalidInput("a trajectory needs at least one step; this session has no messages yet")
    session, total = portable.session, sum_usage(portable.messages)
    return orjson.dumps(
        {
            "schema_version": _SCHEMA_VERSION,
            "session_id": session.id,
            "agent": {
                "name": "clew",
                "version": __version__,
                "model_name": str(session.model),
                **_tools(portable),
                "extra": {"agent": session.agent},
            },
            "steps": [{"step_id": number, **one} for number, one in enumerate(steps, start=1)],
            **({"notes": notes} if (notes := left_out(portable, shown)) else {}),
            "final_metrics": {
                **{f"total_{name}": value for name, value in _tokens(total).items()},
                "total_cost_usd": session.cost_usd,
                "total_steps": len(steps),
            },
        },
        option=orjson.OPT_INDENT_2,
    )


def _tools(portable: PortableSession) -> dict[str, Any]:
    """Return the tools of the newest request, as OpenAI's functions."""
    bodies = {prompt.digest: prompt.body for prompt in portable.prompts}
    newest = max(portable.steps, key=lambda step: step.finished_at, default=None)
    body = None if newest is None else bodies.get(newest.tools_digest or "")
    if body is None:
        return {}
    return {
        "tool_definitions": [
            {
                "type": "function",
                "function": {
                    "name": tool["name"],
                    "description": tool["description"],
                    "parameters": tool["input_schema"],
                },
            }
            for tool in orjson.loads(body)
        ]
    }


def _steps(passage: Passage, recorded: Sequence[Step]) -> list[dict[str, Any]]:
    row = passage.row
    extra: dict[str, Any] = {"message_id": row.id, **({"hidden": passage.mark} if passage.mark else {})}
    parts = [part.data for part in row.parts]
    summary = compaction_data(row)
    if row.role == "assistant" and summary is None:
        return _agent_steps(row, parts, recorded, extra)
    text = str(summary.get("summary", "")) if summary is not None else _text(parts)
    if summary is not None:
        extra["compaction"] = True
    source = "user" if row.is_prompt else "system"
    return [{"timestamp": iso(row.created_at), "source": source, "message": text, "extra": extra}]


def _agent_steps(
    row: MessageRow, parts: Sequence[Part], recorded: Sequence[Step], extra: Mapping[str, Any]
) -> list[dict[str, Any]]:
    groups = p.steps_of(parts) or [[]]
    # Without a record for each step, the message's usage is that of its last one.
    calls: list[Step | None] = [*recorded] if len(recorded) == len(groups) else [None] * len(groups)
    built = []
    for number, (group, call) in enumerate(zip(groups, calls, strict=True), start=1):
        step: dict[str, Any] = {
            "timestamp": iso(row.created_at if call is None else call.started_at),
            "source": "agent",
            "message": _text(group),
            **_calls(group),
        }
        if reasoning := [text for part in group if (text := p.text_of(part, "reasoning"))]:
            step["reasoning_content"] = "\n\n".join(reasoning)
        if call is not None:
            step |= {"model_name": str(call.model), "llm_call_count": 1}
            step["metrics"] = {**_metrics(call.usage), "cost_usd": call.cost_usd}
        elif number == len(groups) and row.usage.total:
            step["metrics"] = _metrics(row.usage)
        built.append({**step, "extra": {**extra}})
    return built


def _calls(group: Sequence[Part]) -> dict[str, Any]:
    """Return the tool calls of a step and what came of them; nothing without calls."""
    calls = [part for part in group if p.is_call(part)]
    results = [_result(part) for part in calls if not p.is_open_call(part)]
    return {
        **({"tool_calls": [_call(part) for part in calls]} if calls else {}),
        **({"observation": {"results": results}} if results else {}),
    }


def _call(part: Part) -> dict[str, Any]:
    given = p.input_of(part)
    arguments = given if isinstance(given, dict) else {} if given is None else {"input": given}
    return {"tool_call_id": p.call_id_of(part), "function_name": p.tool_name(part), "arguments": arguments}


def _result(part: Part) -> dict[str, Any]:
    extra: dict[str, Any] = {} if p.state_of(part) == "output-available" else {"state": p.state_of(part)}
    if child := p.child_data(p.output_of(part)):
        extra["subagent"] = child
    result = {"source_call_id": p.call_id_of(part), "content": p.result_text(part)}
    return {**result, "extra": extra} if extra else result


def _text(parts: Sequence[Part]) -> str:
    """Return the text of a message, with a line for each of its files."""
    files = (part for part in parts if p.kind_of(part) == "file")
    named = (f"[file: {p.name_of(file) or 'unnamed'} ({p.media_type_of(file) or 'unknown'})]" for file in files)
    return "\n\n".join([*p.texts_of(parts), *named])


def _metrics(usage: Usage) -> dict[str, Any]:
    return {**_tokens(usage), "extra": {"reasoning_tokens": usage.reasoning, "cache_write_tokens": usage.cache_write}}


def _tokens(usage: Usage) -> dict[str, int]:
    """Return inclusive counts, as the format wants them: input with the cache, output with reasoning."""
    return {
        "prompt_tokens": usage.input + usage.cache_read + usage.cache_write,
        "completion_tokens": usage.output + usage.reasoning,
        "cached_tokens": usage.cache_read,
    }
