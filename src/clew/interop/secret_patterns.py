"""Patterns of secrets: passwords and the keys of many services. Clew's own are in ``secret_patterns.toml``.

The rules for single services are those of gitleaks, which the package ``secretscreen`` contains as a file; its code is
not used. Only rules for tokens with a distinctive prefix are used. Rules for a name with a value are left out, since
redaction has its own, and so are a few that also match ordinary text.

No pattern can take long: each is bounded or possessive. It is tried only if a text contains one of its keywords, or the
name of a secret with ``=`` or ``:``, so that the usual cost is a search for words.
"""

from __future__ import annotations

import functools
import re
import tomllib
import warnings
from collections.abc import Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from clew.convert import convert
from clew.errors import InternalError

__all__ = ["SecretPattern", "SecretPatterns", "secret_patterns"]


class SecretPattern(msgspec.Struct, frozen=True):
    """One kind of secret. It is tried on texts with one of its ``keywords`` in lower case, or if ``named``, with a
    value after a secret's name. A ``token`` is replaced as a whole; otherwise the first group of the match stays."""

    kind: str
    pattern: re.Pattern[str]
    keywords: tuple[str, ...] = ()
    named: bool = False
    token: bool = False


class SecretPatterns:
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


_PACKAGE: Final = "secretscreen"
_SAME: Final = {0x130: "i", 0x131: "i", 0x17F: "s", 0x212A: "k"}
_NAMED: Final = re.compile(r"\{0,50\}\?|\[\\s'\"\]\{0,3\}")
"""Marks of a rule that matches a name and a value."""
_ENDS: Final = ("(?:[\\x60'\"\\s;]|\\\\[nr]|$)", "(?:[\\x60'\"\\s;]|\\\\[nr]|$|\\b)")
"""Ends of rules, which do not allow a comma after the token."""


@functools.cache
def secret_patterns() -> SecretPatterns:
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
    return SecretPatterns(names, patterns)


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
