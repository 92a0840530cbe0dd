"""Redaction: removes secrets from a session before an export. A mark with the kind replaces each secret.

Secrets are found by patterns (:mod:`clew.interop.secret_patterns`) in any text, by the names of keys such as
``password``, and by values that the caller passes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
import orjson

from clew.interop.secret_patterns import secret_patterns
from clew.transcript.message import MessageRow
from clew.transcript.part import blob_url
from clew.transcript.portable import Blob, PortableSession, Prompt, rename_value
from clew.transcript.session import Session

__all__ = ["Redaction", "redact_session"]

_STRUCTURE: Final = frozenset({"type", "state"})
"""Keys of a part whose values belong to the format. At deeper levels, keys of these names are not special."""
_MAX_TITLE: Final = 500
_MAX_CACHED_CHARS, _MAX_CACHED_TEXTS = 64, 10_000
"""The length and number of texts without a secret that are remembered, mostly names."""
replace = msgspec.structs.replace


class Redaction:
    """A remover of secrets from texts and values, which counts them in ``count``."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self.count = 0
        # The longest first: one secret may be the beginning of another.
        known = "|".join(re.escape(secret) for secret in sorted({*secrets} - {""}, key=len, reverse=True))
        self._known = re.compile(known) if known else None
        self._clean: set[str] = set()

    def text(self, text: str) -> str:
        """Return the text with a mark instead of each secret."""
        if self._known is not None:
            text = self._known.sub(self._mark("secret"), text)
        if text in self._clean:
            return text
        count = self.count
        redacted = text
        for secret in secret_patterns().tried_on(text):
            redacted = secret.pattern.sub(self._mark(secret.kind, whole=secret.token), redacted)
        if len(text) <= _MAX_CACHED_CHARS and count == self.count and len(self._clean) < _MAX_CACHED_TEXTS:
            self._clean.add(text)
        return redacted

    def value(self, value: Any, name: str | None = None) -> Any:
        """Return a JSON value with every text redacted; a long text under a secret's name is replaced completely."""
        if isinstance(value, str):
            redacted = self.text(value)
            if (
                redacted == value
                and len(value) >= 8
                and name is not None
                and secret_patterns().telling_name.fullmatch(name)
            ):
                self.count += 1
                return "[redacted: password]"
            return redacted
        if isinstance(value, dict):
            return {self.text(key): self.value(item, key) for key, item in value.items()}
        return [self.value(item, name) for item in value] if isinstance(value, list) else value

    def part(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return a part with every text redacted, except its type and state."""
        return {
            self.text(key): item if key in _STRUCTURE and isinstance(item, str) else self.value(item, key)
            for key, item in data.items()
        }

    def session(self, session: Session) -> Session:
        """Return a session row redacted, with names of an allowed length."""
        metadata = self.value(session.metadata)
        for key in ("title", "label"):
            if isinstance(metadata.get(key), str):
                metadata[key] = metadata[key][:_MAX_TITLE]
        return replace(session, metadata=metadata)

    def message(self, row: MessageRow) -> MessageRow:
        """Return a message and its parts redacted."""
        parts = tuple(replace(part, data=self.part(part.data)) for part in row.parts)
        return replace(row, metadata=self.value(row.metadata), parts=parts)

    def body(self, body: str) -> str:
        """Return a text redacted; if it is JSON, it stays valid JSON."""
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError:
            return self.text(body)
        redacted = self.value(value)
        return body if redacted == value else orjson.dumps(redacted, option=orjson.OPT_SORT_KEYS).decode()

    def _mark(self, kind: str, *, whole: bool = False) -> Callable[[re.Match[str]], str]:
        def mark(found: re.Match[str]) -> str:
            self.count += 1
            prefix = found[1] if found.re.groups and not whole else ""
            return f"{prefix}[redacted: {kind}]"

        return mark


def redact_session(portable: PortableSession, secrets: Sequence[str] = ()) -> PortableSession:
    """Return the session without secrets; its ``redacted`` counts them, including those of earlier exports.

    A prompt or blob that changes gets a new digest, and references to it follow. Blobs that are not text are unchanged.
    """
    redaction = Redaction(secrets)
    names: dict[str, str] = {}
    prompts: list[Prompt] = []
    for prompt in portable.prompts:
        body = redaction.body(prompt.body)
        if body != prompt.body:
            names[prompt.digest] = sha256(body.encode()).hexdigest()
            prompt = Prompt(names[prompt.digest], body)
        prompts.append(prompt)
    blobs: list[Blob] = []
    for blob in portable.blobs:
        with contextlib.suppress(UnicodeDecodeError):
            data = redaction.text(blob.data.decode()).encode()
            if data != blob.data:
                digest = sha256(data).hexdigest()
                names[blob_url(blob.sha256)] = blob_url(digest)
                blob = Blob(digest, blob.media_type, data)
        blobs.append(blob)

    def rename(digest: str) -> str:
        # A digest is always a complete text, never a part of one.
        return names.get(digest, digest)

    def bag(value: dict[str, Any]) -> dict[str, Any]:
        redacted: dict[str, Any] = rename_value(redaction.value(value), rename)
        return redacted

    messages = []
    session = redaction.session(portable.session)
    for row in map(redaction.message, portable.messages):
        parts = (replace(part, data=rename_value(part.data, rename)) for part in row.parts)
        messages.append(replace(row, parts=tuple(parts), metadata=rename_value(row.metadata, rename)))
    portable = replace(
        portable,
        session=session,
        messages=tuple(messages),
        turns=tuple(replace(turn, data=redaction.value(turn.data)) for turn in portable.turns),
        steps=tuple(
            replace(step, prompt_digest=names.get(step.prompt_digest or "", step.prompt_digest), data=bag(step.data))
            for step in portable.steps
        ),
        prompts=tuple(sorted(prompts, key=lambda prompt: prompt.digest)),
        blobs=tuple(sorted(blobs, key=lambda blob: blob.sha256)),
    )
    return replace(portable, redacted=portable.redacted + redaction.count)
