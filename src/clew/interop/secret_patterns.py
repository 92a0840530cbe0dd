"""Patterns of secrets: how passwords and the keys of many services look. What is ours of them is data beside this.

The rules about single services are gitleaks', which the package ``secretscreen`` brings as a file; its code is not
used. Taken are those that begin with what only such a token begins with. Left out are rules about a name and a value
beside it, which redaction finds by names of its own, and a few that would also find ordinary text.

No pattern can take long: each is bounded, or eats what it has begun. It is tried only where a text holds one of its
keywords, or a name that tells with a sign behind it: the cost is that of finding words.
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

from clew.convert import fit
from clew.errors import InternalError

__all__ = ["SecretPattern", "SecretPatterns", "secret_patterns"]


class SecretPattern(msgspec.Struct, frozen=True):
    """One kind of secret. A text without any of its ``keywords`` in lower case has none, nor one without a ``named``
    value. Of a ``token`` the whole match goes; else what its first group holds stays."""

    kind: str
    pattern: re.Pattern[str]
    keywords: tuple[str, ...] = ()
    named: bool = False
    token: bool = False


class SecretPatterns:
    """All there are, in the order they are tried, and names that tell."""

    def __init__(self, names: str, patterns: Sequence[SecretPattern]) -> None:
        self.patterns = tuple(patterns)
        self.telling_name = re.compile(rf"(?i)[A-Za-z0-9_.-]{{0,100}}(?:{names}|authorization|cookie)", re.ASCII)
        self._signed = re.compile(rf"(?:{names})\\?[\"']?\s{{0,3}}[=:]")
        self._words = [(word, place) for place, one in enumerate(patterns) for word in one.keywords]
        self._named = [place for place, one in enumerate(patterns) if one.named]

    def tried_on(self, text: str) -> list[SecretPattern]:
        """Those that may find something in a text, in their order."""
        # What counts as the same letter, whatever its case, in a pattern: a few outside of ASCII do.
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
"""In a rule: that it looks for a name, then a value."""
_ENDS: Final = ("(?:[\\x60'\"\\s;]|\\\\[nr]|$)", "(?:[\\x60'\"\\s;]|\\\\[nr]|$|\\b)")
"""In a rule: what must follow. In prose a comma may, too."""


@functools.cache
def secret_patterns() -> SecretPatterns:
    """Read and compiled once, when something is redacted first."""
    ours = tomllib.loads(resources.files("clew.interop").joinpath("secret_patterns.toml").read_text(encoding="utf-8"))
    names, value = ours["names"], ours["value"]
    patterns = [
        SecretPattern(
            one["kind"],
            re.compile(one["pattern"].replace("{names}", names).replace("{value}", value)),
            tuple(one.get("keywords", ())),
            one.get("named", False),
        )
        for one in ours["context"]
    ]
    patterns += [
        SecretPattern(one["kind"], re.compile(one["pattern"], re.ASCII), tuple(one["keywords"]), token=True)
        for one in ours["token"]
    ]
    # Its module would compile every rule; the file is all that is wanted of it.
    spec = find_spec(_PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    try:
        text = (Path((folders or [""])[0]) / "gitleaks.toml").read_text(encoding="utf-8")
        rules = fit(tomllib.loads(text).get("rules", []), list[_Rule])
    except (OSError, ValueError, msgspec.ValidationError) as error:
        # Without them secrets would leave in what is said to be without.
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
    # They are written for Go: its flags may stand anywhere, and its end of a text has another name.
    regex = regex.replace("(?i)", "").replace(r"\z", r"\Z")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(regex, flags)
