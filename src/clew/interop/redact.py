"""Redaction: removes secrets from a session before an export. A mark with the kind replaces each secret.

Secrets are found by patterns in any text, by the names of keys such as ``password``, and by values that the caller
passes. clew's own patterns are in ``secret_patterns.toml``.

The rules for single services are those of gitleaks, which the package ``secretscreen`` contains as a file; its code is
not used. Only rules for tokens with a distinctive prefix are used. Rules for a name with a value are left out, since
redaction has its own, and so are a few that also match ordinary text.

No pattern can take long: each is bounded or possessive. It is tried only if a text contains one of its keywords, or the
name of a secret with ``=`` or ``:``, so that the usual cost is a search for words.
"""

from __future__ import annotations

import contextlib
import functools
import re
import tomllib
import warnings
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from clew.convert import convert
from clew.errors import InternalError
from clew.transcript.message import MessageRow
from clew.transcript.part import blob_url
from clew.transcript.portable import Blob, PortableSession, Prompt, rename_value
from clew.transcript.session import Session

__all__ = ["Redaction", "SecretPattern", "redact_session", "secret_patterns"]

_PACKAGE: Final = "secretscreen"
_SAME: Final = {0x130: "i", 0x131: "i", 0x17F: "s", 0x212A: "k"}
_NAMED: Final = re.compile(r"\{0,50\}\?|\[\\s'\"\]\{0,3\}")
"""Marks of a rule that matches a name and a value."""
_ENDS: Final = ("(?:[\\x60'\"\\s;]|\\\\[nr]|$)", "(?:[\\x60'\"\\s;]|\\\\[nr]|$|\\b)")
"""Ends of rules, which do not allow a comma after the token."""
_STRUCTURE: Final = frozenset({"type", "state"})
"""Keys of a part whose values belong to the format. At deeper levels, keys of these names are not special."""
_MAX_TITLE: Final = 500
_MAX_CACHED_CHARS, _MAX_CACHED_TEXTS = 64, 10_000
"""The length and number of texts without a secret that are remembered, mostly names."""
replace = msgspec.structs.replace


class SecretPattern(msgspec.Struct, frozen=True):
    """One kind of secret. It is tried on texts with one of its ``keywords`` in lower case, or if ``named``, with a
    value after a secret's name. A ``token`` is replaced as a whole; otherwise the first group of the match stays."""

    kind: str
    pattern: re.Pattern[str]
    keywords: tuple[str, ...] = ()
    named: bool = False
    token: bool = False


class _SecretPatterns:
    """All patterns in the order they are tried, and the names of secrets."""

    def __init__(self, names: str, patterns: Sequence[SecretPattern]) -> None:
        self.patterns = tuple(patterns)
        self.telling_name = re.compile(rf"(?i)[A-Za-z0-9_.-]{{0,100}}(?:{names}|authorization|cookie)", re.ASCII)
        self._signed = re.compile(rf"(?:{names})\\?[\"']?\s{{0,3}}[=:]")
        self._words = [(word, place) for place, pattern in enumerate(patterns) for word in pattern.keywords]
        self._named = [place for place, pattern in enumerate(patterns) if pattern.named]

    def tried_on(self, text: str) -> list[SecretPattern]:
        """Return the patterns that may match in a text, in their order."""
        # A case-insensitive pattern also matches a few letters outside of ASCII.
        lowered = text.lower() if text.isascii() else text.translate(_SAME).lower()
        places = [place for word, place in self._words if word in lowered]
        if self._signed.search(lowered) is not None:
            places += self._named
        return [self.patterns[place] for place in sorted(set(places))] if places else []


class _Rule(msgspec.Struct):
    id: str
    regex: str = ""
    keywords: tuple[str, ...] = ()


@functools.cache
def secret_patterns() -> _SecretPatterns:
    """Return all patterns. They are read and compiled on first use."""
    ours = tomllib.loads(resources.files("clew.interop").joinpath("secret_patterns.toml").read_text(encoding="utf-8"))
    names, value = ours["names"], ours["value"]
    patterns = [
        SecretPattern(
            entry["kind"],
            re.compile(entry["pattern"].replace("{names}", names).replace("{value}", value)),
            tuple(entry.get("keywords", ())),
            entry.get("named", False),
        )
        for entry in ours["context"]
    ]
    patterns += [
        SecretPattern(entry["kind"], re.compile(entry["pattern"], re.ASCII), tuple(entry["keywords"]), token=True)
        for entry in ours["token"]
    ]
    # The package is not imported, since it would compile every rule.
    spec = find_spec(_PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    try:
        text = (Path((folders or [""])[0]) / "gitleaks.toml").read_text(encoding="utf-8")
        rules = convert(tomllib.loads(text).get("rules", []), list[_Rule])
    except (OSError, ValueError, msgspec.ValidationError) as error:
        # Without these rules an export would contain secrets and claim not to.
        raise InternalError(f"the rules of {_PACKAGE} cannot be read, so nothing can be redacted: {error}") from error
    for rule in rules:
        if rule.id not in ours["left_out"] and rule.regex and rule.keywords and not _NAMED.search(rule.regex):
            keywords = tuple(word.lower() for word in rule.keywords)
            patterns.append(SecretPattern(rule.id.replace("-", " "), _compiled(rule.regex), keywords, token=True))
    return _SecretPatterns(names, patterns)


def _compiled(regex: str) -> re.Pattern[str]:
    for end in _ENDS:
        if regex.endswith(end):
            regex = regex.removesuffix(end) + r"(?![\w-])"
    flags = re.ASCII | (re.IGNORECASE if "(?i)" in regex else 0)
    # The rules use Go's syntax, where flags may be anywhere and the end of the text is `\z`.
    regex = regex.replace("(?i)", "").replace(r"\z", r"\Z")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(regex, flags)


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
