"""Conversion of messages and tools to those of the library.

A message of clew may have several steps; each becomes a response with its texts, reasoning and calls, followed by the
results of the calls. Reasoning is sent only to the provider that made it, which its metadata names, or to one that
accepts its signature: others refuse it or would read it as text. Data parts, sources and parts of unknown types are
left out. A call without a result gets one that says so, since a provider refuses a conversation without it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from clew.providers.base import ModelRequest, ToolSchema
from clew.transcript import part as p
from clew.transcript.message import Message

__all__ = ["sent_calls", "translate", "translate_tools"]

_NO_RESULT: Final = "The call has no result: it was interrupted. What it did is not known."
_NO_OUTPUT: Final = "(no output)"
_DENIED: Final = "The user did not allow this call."
_FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_ID: Final = 40
"""The limit of OpenAI's chat API; others allow longer ids."""
_SHORT_ID: Final = re.compile(r"[A-Za-z0-9]{9}")
_LONGEST_NAME: Final = 64


def translate(
    request: ModelRequest,
    provider_id: str,
    system: str,
    canonical_system: str,
    *,
    marks: bool = False,
    short_ids: bool = False,
    seals: tuple[str, ...] = (),
) -> list[Any]:
    """Return the request's messages for the library. ``system`` is the library's name for the provider, and
    ``canonical_system`` that of the vendor whose keys can decrypt the model's reasoning.

    ``marks``: the provider has explicit cache points, so that the end of the settled messages gets one. ``short_ids``:
    it only accepts call ids of nine letters and digits. ``seals`` names other providers whose reasoning it accepts.
    """
    from pydantic_ai import messages as theirs

    history = _History(theirs, provider_id, system, str(request.model.model_id))
    history.canonical_system, history.short_ids, history.seals = canonical_system, short_ids, seals
    history.settled_call = request.settled_call if marks and not request.once else None
    return history.of(request)


def translate_tools(request: ModelRequest) -> list[Any]:
    """Return the tools for the library. If none are offered, the tools of earlier calls are defined still, since
    Anthropic refuses calls of undefined tools."""
    from pydantic_ai.tools import ToolDefinition

    made = {_name(part) for message in request.messages for part in message.parts if p.is_call(part)}
    gone = [ToolSchema(name, "Not offered any more.", {"type": "object"}) for name in sorted(made)]
    return [
        ToolDefinition(
            name=tool.name, description=tool.description, parameters_json_schema=dict(tool.input_schema), strict=False
        )
        for tool in request.tools or gone
    ]


def sent_calls(messages: Iterable[Message]) -> set[str]:
    """Return the ids of all calls in these messages."""
    return {id_ for message in messages for part in message.parts if (id_ := p.call_id_of(part)) is not None}


class _History:
    def __init__(self, theirs: Any, provider_id: str, system: str, model_id: str) -> None:
        self._theirs = theirs
        self._provider_id = provider_id
        self._system = system
        self._model_id = model_id
        self._out: list[Any] = []
        self._ids: dict[str, str] = {}
        self._taken: set[str] = set()
        self.settled_call: str | None = None
        self.canonical_system = system
        self.short_ids = False
        self.seals: tuple[str, ...] = ()

    def of(self, request: ModelRequest) -> list[Any]:
        if request.system:
            self._ask([self._theirs.SystemPromptPart(content=request.system)])
        for message in request.messages:
            if message.role == "assistant":
                for step in p.steps_of(message.parts):
                    self._answer(step)
            elif message.role == "system":
                self._ask([self._theirs.SystemPromptPart(content=text) for text in message.texts])
            else:
                shown = ((part, p.text_of(part)) for part in message.parts)
                content = [text or self._file(part) for part, text in shown if text or p.kind_of(part) == "file"]
                if content:
                    # A single text is sent as a string, since small servers accept nothing else.
                    plain = len(content) == 1 and isinstance(content[0], str)
                    self._ask([self._theirs.UserPromptPart(content=content[0] if plain else content)])
        return self._out

    def _ask(self, parts: Sequence[Any]) -> None:
        """Add parts to the request. Adjacent requests are joined, results before texts."""
        if not parts:
            return
        last = self._out[-1] if self._out else None
        if isinstance(last, self._theirs.ModelRequest):
            last.parts = [*last.parts, *parts]
        else:
            self._out.append(self._theirs.ModelRequest(parts=list(parts)))

    def _file(self, part: p.Part) -> Any:
        """Return a file for the model, or its name if its bytes are missing."""
        media_type = p.media_type_of(part) or "application/octet-stream"
        data = p.bytes_in(p.url_of(part) or "")
        if data is None:
            return f"[{p.file_name_of(part) or 'a file'} ({media_type}) is not shown]"
        if media_type == "text/plain":
            return data.decode("utf-8", "replace")
        return self._theirs.BinaryContent(data=data, media_type=media_type)

    def _answer(self, step: Sequence[p.Part]) -> None:
        """Add a step: the model's response, then the results of its calls with their files. The library puts the files
        into the result, or after all results if the API does not allow that."""
        translated: list[Any] = []
        returned: list[Any] = []
        errors: list[Any] = []
        files: dict[str | None, list[Any]] = {}
        for part in step:
            if (giver := p.giver_of(part)) is not None:
                files.setdefault(giver, []).append(self._file(part))
        for part in step:
            text = p.text_of(part)
            # Some providers refuse a text of white space.
            if text is not None and text.strip():
                translated.append(self._text(part, text))
            elif p.kind_of(part) == "reasoning":
                translated += self._reasoning(part)
            elif p.is_call(part) and self._own(part).get("form"):
                # Structured output is sent as a text, and an error about it as a prompt.
                translated.append(self._text(part, p.input_text(part)))
                if p.state_of(part) == "output-error":
                    errors.append(self._theirs.UserPromptPart(content=p.error_text(part) or "The answer does not fit."))
            elif p.is_call(part):
                translated.append(self._call(part))
                returned.append(self._result(part, files.get(p.call_id_of(part), ())))
        # Providers refuse a response that ends with reasoning. xAI may send encrypted reasoning last, which belongs
        # first.
        last: list[Any] = []
        while translated and isinstance(translated[-1], self._theirs.ThinkingPart):
            last.append(translated.pop())
        if translated and self._system == "xai":
            translated[:0] = last
        if not translated:
            return
        self._out.append(
            self._theirs.ModelResponse(
                parts=translated,
                model_name=self._model_id,
                provider_name=self._system,
                canonical_system=self.canonical_system,
            )
        )
        self._ask([*returned, *errors])
        if self.settled_call is not None and any(p.call_id_of(part) == self.settled_call for part in step):
            self._ask([self._theirs.UserPromptPart(content=[self._theirs.CachePoint()])])

    def _own(self, part: p.Part) -> Mapping[str, Any]:
        """Return this provider's metadata of the part."""
        return p.provider_data(part, self._provider_id) or {}

    def _text(self, part: p.Part, text: str) -> Any:
        details = self._own(part).get("details")
        if not isinstance(details, dict):
            return self._theirs.TextPart(content=text)
        return self._theirs.TextPart(content=text, provider_name=self._system, provider_details=details)

    def _reasoning(self, part: p.Part) -> list[Any]:
        own = p.seal_of(part, (self._provider_id, *self.seals))
        if own is None:
            return []
        return [
            self._theirs.ThinkingPart(
                content=p.text_of(part, "reasoning") or "",
                id=_text(own.get("id")),
                signature=_text(own.get("signature")),
                provider_name=self._system,
                provider_details=own.get("details") if isinstance(own.get("details"), dict) else None,
            )
        ]

    def _call(self, part: p.Part) -> Any:
        given = p.input_of(part)
        if not isinstance(given, dict):
            given = {} if given is None else {"invalid_arguments": given}
        details = self._own(part).get("details")
        return self._theirs.ToolCallPart(
            tool_name=_name(part),
            args=given,
            tool_call_id=self._id(p.call_id_of(part) or ""),
            provider_name=self._system if isinstance(details, dict) else None,
            provider_details=details if isinstance(details, dict) else None,
        )

    def _result(self, part: p.Part, files: Sequence[Any]) -> Any:
        outcome = "success"
        match p.state_of(part):
            case "output-available" if not p.is_preliminary(part):
                content = p.read_output(part)
                if texts := [file for file in files if isinstance(file, str)]:
                    content = "\n\n".join(text for text in (p.output_text(part) or "", *texts) if text.strip())
                if len(texts) < len(files):
                    # Next to files, an empty text is left out.
                    said = [] if content is None or (isinstance(content, str) and not content.strip()) else [content]
                    content = [*said, *(file for file in files if not isinstance(file, str))]
            case "output-error":
                content, outcome = p.error_text(part) or "The call failed.", "failed"
            case "output-denied":
                reason = p.approval_of(part).get("reason")
                content = f"{_DENIED} Reason: {reason}" if isinstance(reason, str) and reason else _DENIED
                outcome = "denied"
            case _:
                content, outcome = _NO_RESULT, "interrupted"
        # Anthropic refuses an empty result, or one of white space.
        empty = content is None or (isinstance(content, str) and not content.strip())
        return self._theirs.ToolReturnPart(
            tool_name=_name(part),
            content=_NO_OUTPUT if empty else content,
            tool_call_id=self._id(p.call_id_of(part) or ""),
            outcome=outcome,
        )

    def _id(self, id_: str) -> str:
        """Return an id for a call that every provider accepts. Ids of calls are distinct."""
        known = self._ids.get(id_)
        if known is None:
            known = _FORBIDDEN.sub("_", id_)[:_LONGEST_ID] or "call"
            if self.short_ids and _SHORT_ID.fullmatch(known) is None:
                known = hashlib.sha256(id_.encode()).hexdigest()[:9]
            count = 2
            plain = known
            while known in self._taken:
                known = f"{plain[: _LONGEST_ID - 6]}_{count}"
                count += 1
            self._ids[id_] = known
            self._taken.add(known)
        return known


def _name(part: p.Part) -> str:
    """Return a name for a tool that every provider accepts. An imported call may have any name."""
    return _FORBIDDEN.sub("_", p.tool_name(part))[:_LONGEST_NAME] or "tool"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
