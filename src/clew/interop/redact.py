"""Redaction: secrets taken out of a session before it leaves. Every redaction leaves a mark that says of which kind.

Known shapes of keys are found wherever a text stands, values under telling names by their names, and values that the
caller knows by themselves. No pattern can take long: each is bounded, or eats what it has begun. The shapes here go by
what stands around a secret, or are looser than others'; those of single services are in
:mod:`clew.interop.secret_patterns`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
import orjson

from clew.interop.secret_patterns import token_shapes
from clew.transcript.message import MessageRow
from clew.transcript.part import blob_url
from clew.transcript.portable import Blob, PortableSession, Prompt, Rename, rename_value
from clew.transcript.turn import Step

__all__ = ["Redaction", "redact_session"]

_VALUE: Final = r"(?!\[redacted)[^\s\"'`&,;<>()\]}\\]{8,}"
_NAMES: Final = (
    r"passw(?:or)?d|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key|(?:access|auth|refresh|id)?[_-]?token"
)
_SHAPES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    (
        "private key",
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r".*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
            re.DOTALL,
        ),
    ),
    ("jwt", re.compile(r"\beyJ[\w-]{8,4096}\.eyJ[\w-]{4,65536}\.[\w-]{4,}", re.ASCII)),
    ("github token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})")),
    ("slack token", re.compile(r"\bxox[a-z]-[A-Za-z0-9-]{10,}")),
    ("google key", re.compile(r"\bAIza[A-Za-z0-9_-]{30,}")),
    ("aws key", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    ("api key", re.compile(r"(?<![A-Za-z0-9])sk-(?=[A-Za-z_-]{0,200}[0-9])[A-Za-z0-9_-]{16,}")),
    (
        "authorization",
        re.compile(r"(?i)(?<=authorization)([\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:bearer|basic|token)\s{1,3})" + _VALUE),
    ),
    ("authorization", re.compile(r"(?i)(\bbearer\s{1,3})(?!\[redacted)[A-Za-z0-9._~+/=-]{16,}")),
    ("password", re.compile(rf"(?i)((?:{_NAMES})[\"']?\s{{0,3}}[=:]\s{{0,3}}\")(?!\[redacted)[^\"\n]{{8,500}}(?=\")")),
    ("password", re.compile(rf"(?i)((?:{_NAMES})[\"']?\s{{0,3}}[=:]\s{{0,3}}')(?!\[redacted)[^'\n]{{8,500}}(?=')")),
    ("password", re.compile(rf"(?i)((?:{_NAMES})[\"']?\s{{0,3}}=\s{{0,3}}[\"']?)" + _VALUE)),
    ("password", re.compile(rf"(?i)((?:{_NAMES})\\?[\"']?\s{{0,3}}:\s{{0,3}}\\?[\"'])" + _VALUE)),
    ("password", re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{1,100}:)(?!\[redacted)[^\s:/@]{4,200}(?=@)")),
)
"""Kind and shape, the more telling first. What the first group holds stays."""
_NAMED: Final = re.compile(rf"(?i)[A-Za-z0-9_.-]{{0,100}}(?:{_NAMES}|authorization|cookie)", re.ASCII)
"""Names that tell, whatever stands before them: ``AWS_SECRET_ACCESS_KEY``, ``clientSecret``."""
_STRUCTURE: Final = frozenset({"type", "state"})
"""Keys of a part itself whose values are words of the format. Further in, they are anybody's."""
_MAX_TITLE: Final = 500
replace = msgspec.structs.replace


class Redaction:
    """Takes secrets out of texts and values, and counts them in ``count``."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self.count = 0
        # The longest first: one secret may be the beginning of another.
        known = "|".join(re.escape(secret) for secret in sorted({*secrets} - {""}, key=len, reverse=True))
        self._known = re.compile(known) if known else None

    def text(self, text: str) -> str:
        """The text with a mark in the place of each secret."""
        if self._known is not None:
            text = self._known.sub(self._mark("secret"), text)
        for kind, pattern in _SHAPES:
            text = pattern.sub(self._mark(kind), text)
        lowered = text.lower()
        for shape in token_shapes():
            if any(word in lowered for word in shape.keywords):
                text = shape.pattern.sub(self._mark(shape.kind, whole=True), text)
        return text

    def value(self, value: Any, name: str | None = None) -> Any:
        """A JSON value with every text in it redacted; a long text under a telling name goes as a whole."""
        if isinstance(value, str):
            redacted = self.text(value)
            if redacted == value and len(value) >= 8 and name is not None and _NAMED.fullmatch(name):
                self.count += 1
                return "[redacted: password]"
            return redacted
        if isinstance(value, dict):
            return {self.text(key): self.value(item, key) for key, item in value.items()}
        return [self.value(item, name) for item in value] if isinstance(value, list) else value

    def part(self, data: dict[str, Any]) -> dict[str, Any]:
        """A part with every text in it redacted, but for the words that say what it is."""
        return {
            self.text(key): item if key in _STRUCTURE and isinstance(item, str) else self.value(item, key)
            for key, item in data.items()
        }

    def body(self, body: str) -> str:
        """A text that may be JSON, and then stays JSON."""
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError:
            return self.text(body)
        redacted = self.value(value)
        return body if redacted == value else orjson.dumps(redacted, option=orjson.OPT_SORT_KEYS).decode()

    def _mark(self, kind: str, *, whole: bool = False) -> Callable[[re.Match[str]], str]:
        def mark(found: re.Match[str]) -> str:
            self.count += 1
            kept = found[1] if found.re.groups and not whole else ""
            return f"{kept}[redacted: {kind}]"

        return mark


def redact_session(portable: PortableSession, secrets: Sequence[str] = ()) -> PortableSession:
    """The session without secrets; ``redacted`` is how many were taken out, earlier ones included.

    What is kept under a digest is kept under a new one when it changed, and named by it. Bytes that are no text are
    left as they are.
    """
    redaction = Redaction(secrets)
    names: dict[str, str] = {}
    prompts = tuple(_redacted_prompt(prompt, redaction, names) for prompt in portable.prompts)
    blobs = tuple(_redacted_blob(blob, redaction, names) for blob in portable.blobs)

    def rename(digest: str) -> str:
        # A digest is a text of its own, never a part of one.
        return names.get(digest, digest)

    metadata = redaction.value(portable.session.metadata)
    for key in ("title", "label"):
        if isinstance(metadata.get(key), str):
            metadata[key] = metadata[key][:_MAX_TITLE]
    portable = replace(
        portable,
        session=replace(portable.session, metadata=metadata),
        messages=tuple(_redacted_message(row, redaction, rename) for row in portable.messages),
        turns=tuple(replace(turn, data=redaction.value(turn.data)) for turn in portable.turns),
        steps=tuple(_redacted_step(step, redaction, rename) for step in portable.steps),
        prompts=tuple(sorted(prompts, key=lambda prompt: prompt.digest)),
        blobs=tuple(sorted(blobs, key=lambda blob: blob.sha256)),
    )
    return replace(portable, redacted=portable.redacted + redaction.count)


def _redacted_message(row: MessageRow, redaction: Redaction, rename: Rename) -> MessageRow:
    parts = tuple(replace(part, data=rename_value(redaction.part(part.data), rename)) for part in row.parts)
    return replace(row, metadata=rename_value(redaction.value(row.metadata), rename), parts=parts)


def _redacted_step(step: Step, redaction: Redaction, rename: Rename) -> Step:
    digest = step.prompt_digest
    return replace(
        step,
        prompt_digest=rename(digest) if digest is not None else None,
        data=rename_value(redaction.value(step.data), rename),
    )


def _redacted_prompt(prompt: Prompt, redaction: Redaction, names: dict[str, str]) -> Prompt:
    body = redaction.body(prompt.body)
    if body == prompt.body:
        return prompt
    names[prompt.digest] = sha256(body.encode()).hexdigest()
    return Prompt(names[prompt.digest], body)


def _redacted_blob(blob: Blob, redaction: Redaction, names: dict[str, str]) -> Blob:
    try:
        text = blob.data.decode()
    except UnicodeDecodeError:
        return blob
    data = redaction.text(text).encode()
    if data == blob.data:
        return blob
    digest = sha256(data).hexdigest()
    names[blob_url(blob.sha256)] = blob_url(digest)
    return Blob(digest, blob.media_type, data)
