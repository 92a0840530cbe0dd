"""Conversion of the library's events to chunks.

A text or reasoning is opened with its first character, so that an empty one does not count as begun. A late delta of a
closed one opens another, so that nothing is lost and every chunk is legal. Calls become available at the end of the
stream, when it is known to be complete; arguments that are not a JSON object are an error of the call. Ids of calls are
those of the provider, made unique if they are not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import msgspec

from clew.providers.base import ModelRequest, StepEnd
from clew.providers.pydantic_ai.history import sent_calls
from clew.transcript import chunk as c
from clew.transcript.chunk import UNSET, Chunk, FinishReason, UnsetType
from clew.transcript.turn import NOT_REPORTED
from clew.transcript.usage import Usage

__all__ = ["Translator", "first_usage", "refusal_of", "says_end", "step_end", "usage_of"]

_SHORTEST_UNIQUE: Final = 16
"""A shorter id is a counter that occurs again in other answers."""
_REFUSAL: Final = -1
"""The index of the refusal's text, which has no index in the library."""
_NOT_AN_OBJECT: Final = "the arguments are not a JSON object"
_REASONS: Final[dict[str | None, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content-filter",
    "tool_call": "tool-calls",
    "error": "error",
}
_WORDS: Final[dict[str, FinishReason]] = {
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_length": "length",
}
"""Finish reasons of compatible servers that OpenAI does not have."""


class _Call(msgspec.Struct):
    id: str
    name: str
    written: list[str]
    details: dict[str, Any] | None = None
    form: bool = False
    """Structured output: received as a text, and sent as one."""


class Translator:
    """The state of one stream. ``began``: a chunk was yielded. With ``answer``, a text that is a JSON object becomes a
    call of the tool of that name, since the provider was asked for structured output."""

    def __init__(self, request: ModelRequest, provider_id: str, *, answer: str | None = None) -> None:
        self.began = False
        self._answer = answer
        self._blank: dict[int, str] = {}
        self._provider_id = provider_id
        self._ids = _CallIds(request)
        self._texts: dict[int, str] = {}
        self._reasonings: dict[int, str] = {}
        self._calls: dict[int, _Call] = {}
        self._closed: set[int] = set()
        self._late_seals: dict[int, str] = {}
        self._count = 0

    def take(self, event: Any) -> Iterator[Chunk]:
        for chunk in self._chunks_of(event):
            self.began = True
            yield chunk

    def end(self, last: Any = None, *, refusal: str | None = None) -> Iterator[Chunk]:
        """Yield the chunks at the end of a complete stream: of its last event, ends of open parts, and calls.

        A refusal in a field of its own is text of the model, and is yielded here, since the library holds it back.
        """
        if last is not None:
            yield from self._chunks_of(last)
        yield from self.refuse(refusal)
        for index in list(self._texts):
            yield c.TextEnd(self._texts.pop(index))
        for index in list(self._reasonings):
            yield c.ReasoningEnd(self._reasonings.pop(index))
        for index, seal in self._late_seals.items():
            yield from self._opened(index)
            yield c.ReasoningEnd(self._reasonings.pop(index), provider_metadata=self._metadata(signature=seal))
        for call in self._calls.values():
            yield self._complete(call)

    def refuse(self, text: str | None) -> Iterator[Chunk]:
        """Yield the text of a refusal, which may be incomplete."""
        yield from self._text(_REFUSAL, text)

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    def _chunks_of(self, event: Any) -> Iterator[Chunk]:
        if event.event_kind == "part_end":
            yield from self._ended(event.index, event.part)
        elif event.event_kind == "part_start":
            match event.part.part_kind:
                case "text":
                    yield from self._text(event.index, event.part.content)
                case "thinking":
                    yield from self._reasoning(event.index, event.part.content)
                case "tool-call":
                    yield from self._called(event.index, event.part)
                case "file":
                    yield c.File(url=event.part.content.data_uri, media_type=event.part.content.media_type)
        elif event.event_kind == "part_delta":
            delta, call = event.delta, self._calls.get(event.index)
            match delta.part_delta_kind:
                case "text":
                    yield from self._text(event.index, delta.content_delta)
                case "thinking":
                    if delta.signature_delta and event.index in self._closed:
                        # xAI may send a thought's signature after the answer has begun.
                        self._late_seals[event.index] = delta.signature_delta
                    yield from self._reasoning(event.index, delta.content_delta)
                case "tool_call" if call is not None:
                    call.name += delta.tool_name_delta or ""
                    call.details = {**(call.details or {}), **(delta.provider_details or {})} or None
                    yield from self._written(call, delta.args_delta)

    def _ended(self, index: int, part: Any) -> Iterator[Chunk]:
        if part.part_kind == "text" and index in self._calls:
            self._calls[index].details = part.provider_details
        elif part.part_kind == "text" and index in self._texts:
            yield c.TextEnd(self._texts.pop(index), provider_metadata=self._metadata(details=part.provider_details))
        elif part.part_kind == "thinking":
            self._closed.add(index)
            metadata = self._metadata(id=part.id, signature=part.signature, details=part.provider_details)
            if index not in self._reasonings:
                if not part.signature:
                    return
                # Encrypted reasoning without text, which has to be sent back.
                yield from self._opened(index)
            yield c.ReasoningEnd(self._reasonings.pop(index), provider_metadata=metadata)

    def _text(self, index: int, text: str | None) -> Iterator[Chunk]:
        if not text:
            return
        if index in self._calls:
            yield from self._written(self._calls[index], text)
            return
        if self._answer is not None and index != _REFUSAL and index not in self._texts:
            # The first character decides whether it is an object.
            text = self._blank.pop(index, "") + text
            if not text.strip():
                self._blank[index] = text
                return
            if text.lstrip().startswith("{"):
                call = self._calls[index] = _Call(self._ids.own(None), self._answer, [], form=True)
                # The metadata comes with the start: for an invalid call, later metadata belongs to the result.
                yield c.ToolInputStart(call.id, call.name, provider_metadata=self._metadata(form=True))
                yield from self._written(call, text)
                return
        if index not in self._texts:
            self._texts[index] = self._next("text")
            yield c.TextStart(self._texts[index])
        yield c.TextDelta(self._texts[index], text)

    def _reasoning(self, index: int, text: str | None) -> Iterator[Chunk]:
        if not text:
            return
        yield from self._opened(index)
        yield c.ReasoningDelta(self._reasonings[index], text)

    def _opened(self, index: int) -> Iterator[Chunk]:
        if index not in self._reasonings:
            self._reasonings[index] = self._next("reasoning")
            yield c.ReasoningStart(self._reasonings[index])

    def _called(self, index: int, part: Any) -> Iterator[Chunk]:
        call = self._calls.get(index)
        if call is None:
            call = self._calls[index] = _Call(self._ids.own(part.tool_call_id), part.tool_name, [])
            yield c.ToolInputStart(call.id, call.name)
        else:
            # The call is repeated from its beginning, which replaces its arguments once it is complete.
            call.name, call.written = part.tool_name, []
        call.details = part.provider_details
        yield from self._written(call, part.args)

    def _written(self, call: _Call, arguments: str | dict[str, Any] | None) -> Iterator[Chunk]:
        if not arguments:
            return
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        call.written.append(text)
        yield c.ToolInputDelta(call.id, text)

    def _complete(self, call: _Call) -> Chunk:
        written = "".join(call.written)
        metadata = self._metadata(details=call.details, form=call.form)
        try:
            # Missing arguments are an empty object.
            arguments = json.loads(written, parse_constant=_no_number) if written.strip() else {}
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            return c.ToolInputError(call.id, call.name, written, _NOT_AN_OBJECT, provider_metadata=metadata)
        return c.ToolInputAvailable(call.id, call.name, arguments, provider_metadata=metadata)

    def _metadata(self, **values: Any) -> dict[str, dict[str, Any]] | UnsetType:
        """Return the metadata that the provider requires to be sent back, under its name."""
        metadata = {key: value for key, value in values.items() if value}
        return {self._provider_id: json.loads(json.dumps(metadata, default=str))} if metadata else UNSET

    def _next(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._ids.stamp}_{self._count}"


class _CallIds:
    """Ids of calls that are unique in the conversation."""

    def __init__(self, request: ModelRequest) -> None:
        last = request.messages[-1] if request.messages else None
        position = f"{len(request.messages)} {last.id} {len(last.parts)}" if last else ""
        self.stamp = hashlib.sha256(position.encode()).hexdigest()[:8]
        self._used = sent_calls(request.messages)

    def own(self, given: str | None) -> str:
        plain = given or "call"
        own = plain if len(plain) >= _SHORTEST_UNIQUE else f"{plain}_{self.stamp}"
        count = 2
        while own in self._used:
            own = f"{plain}_{self.stamp}_{count}"
            count += 1
        self._used.add(own)
        return own


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def says_end(response: Any) -> bool:
    """Return whether the provider sent a finish reason. A complete refusal counts as one."""
    if (response.provider_details or {}).get("finish_reason"):
        return True
    if response.provider_name == "xai":
        # Set only if there was one; for other providers the library sets it always.
        return response.finish_reason is not None
    ended = getattr(response, "_has_finish_reason", response.state != "incomplete")
    return bool(response.finish_reason == "content_filter" and ended)


def refusal_of(response: Any) -> str | None:
    """Return the text of the refusal field, which OpenAI's APIs have."""
    text = getattr(response, "_refusal_text", None)
    return text if isinstance(text, str) else None


def usage_of(used: Any) -> Usage:
    """Return the usage in disjoint kinds; the library's counts are inclusive."""
    return Usage.from_inclusive(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        reasoning_tokens=used.output_reasoning_tokens,
        cache_read_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
    )


async def first_usage(response: Any) -> Usage:
    """Return the usage in the first event of the stream. Anthropic counts the input there, in disjoint kinds."""
    stream = getattr(response, "_response", None)
    first = await stream.peek() if stream is not None else None
    reported = getattr(getattr(first, "message", None), "usage", None)
    if reported is None:
        return Usage()
    read, written = reported.cache_read_input_tokens or 0, reported.cache_creation_input_tokens or 0
    return Usage.from_inclusive(
        input_tokens=(reported.input_tokens or 0) + read + written,
        output_tokens=reported.output_tokens or 0,
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def step_end(response: Any, *, has_calls: bool) -> StepEnd:
    """Return the end of the step, with its usage and finish reason."""
    used = response.usage
    raw = (response.provider_details or {}).get("finish_reason")
    reason = _REASONS.get(response.finish_reason) or _WORDS.get(str(raw), "other")
    if has_calls and reason in ("stop", "other"):
        reason = "tool-calls"
    data = {"response_id": response.provider_response_id, "response_model": response.model_name}
    if not (usage := usage_of(used)).total:
        data["usage"] = NOT_REPORTED
    return StepEnd(
        usage=usage,
        finish_reason=reason,
        data={key: value for key, value in data.items() if value},
    )
