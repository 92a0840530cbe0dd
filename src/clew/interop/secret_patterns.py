"""Shapes of tokens: how the keys of many services look, taken from a rule set that others keep.

The rules are gitleaks', which the package ``secretscreen`` brings as a file; its code is not used. Taken are those that
begin with what only such a token begins with. Left out are rules about a name and a value beside it, which redaction
finds by names of its own, and a few that would also find ordinary text. What that set does not know is in a table here.

A shape is tried only where a text holds one of its keywords, and begins with it: the cost is that of finding words.
"""

from __future__ import annotations

import functools
import re
import tomllib
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from clew.errors import InternalError

__all__ = ["TokenShape", "token_shapes"]


class TokenShape(msgspec.Struct, frozen=True):
    """One kind of token, which is the whole match. A text without any of its ``keywords`` in lower case has none."""

    kind: str
    keywords: tuple[str, ...]
    pattern: re.Pattern[str]


_PACKAGE: Final = "secretscreen"
_FILE: Final = "gitleaks.toml"
_NAMED: Final = re.compile(r"\{0,50\}\?|\[\\s'\"\]\{0,3\}")
"""In a rule: that it looks for a name, then a value."""
_ENDS: Final = ("(?:[\\x60'\"\\s;]|\\\\[nr]|$)", "(?:[\\x60'\"\\s;]|\\\\[nr]|$|\\b)")
"""In a rule: what must follow. In prose a comma may, too."""
_LEFT_OUT: Final = frozenset(
    {
        # Whatever stands around them, not the token alone.
        "curl-auth-header",
        "curl-auth-user",
        "kubernetes-secret-yaml",
        "nuget-config-password",
        # Found by shapes of redaction's own, also where they are cut off.
        "jwt",
        "private-key",
        # Ordinary text has this: hashes, numbers, encoded bytes, names in code.
        "airtable-personnal-access-token",
        "azure-ad-client-secret",
        "clickhouse-cloud-api-secret-key",
        "facebook-access-token",
        "hashicorp-tf-api-token",
        "maxmind-license-key",
        "octopus-deploy-api-key",
        "sourcegraph-access-token",
        "square-access-token",
        "twilio-api-key",
        "vault-service-token",
        # A part of the table below, too narrow there.
        "huggingface-access-token",
        "slack-webhook-url",
        "stripe-access-token",
    }
)
_OWN: Final = (
    ("google oauth secret", ("gocspx-",), r"\bGOCSPX-[A-Za-z0-9_-]{20,60}"),
    ("google oauth token", ("ya29.",), r"\bya29\.[A-Za-z0-9_-]{20,2048}"),
    ("google refresh token", ("1//0",), r"(?<![\w/])1//0[A-Za-z0-9_-]{30,500}"),
    ("groq key", ("gsk_",), r"\bgsk_[A-Za-z0-9]{20,100}"),
    ("hugging face token", ("hf_",), r"\bhf_(?=[a-z_]{0,100}[A-Z0-9])[A-Za-z0-9]{30,100}"),
    ("slack hook", ("hooks.slack.com/",), r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/_-]{20,200}"),
    (
        "stripe key",
        ("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"),
        r"\b(?:[sr]k_(?:live|test)|whsec)_[A-Za-z0-9+/=]{16,200}",
    ),
    ("telegram token", (":aa",), r"(?<![\w:])[0-9]{8,12}:AA[A-Za-z0-9_-]{32,36}(?![\w-])"),
    ("twilio key", ("sk",), r"(?<![A-Za-z0-9])SK[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("vault token", ("hvs.",), r"\bhvs\.[A-Za-z0-9_-]{24,200}"),
    ("xai key", ("xai-",), r"\bxai-(?=[A-Za-z_-]{0,100}[0-9])[A-Za-z0-9_-]{40,200}"),
)


@functools.cache
def token_shapes() -> tuple[TokenShape, ...]:
    """All of them, read and compiled once, when something is redacted first."""
    own = [TokenShape(kind, keywords, re.compile(pattern, re.ASCII)) for kind, keywords, pattern in _OWN]
    return (*own, *(shape for rule in _rules() if (shape := _shape(rule)) is not None))


class _Rule(msgspec.Struct):
    id: str
    regex: str = ""
    keywords: tuple[str, ...] = ()


def _rules() -> tuple[_Rule, ...]:
    # Its module would compile every rule; the file is all that is wanted of it.
    spec = find_spec(_PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    try:
        text = (Path((folders or [""])[0]) / _FILE).read_text(encoding="utf-8")
        return tuple(msgspec.convert(tomllib.loads(text).get("rules", []), list[_Rule]))
    except (OSError, ValueError, msgspec.ValidationError) as error:
        # Without them secrets would leave in what is said to be without.
        raise InternalError(f"the rules of {_PACKAGE} cannot be read, so nothing can be redacted: {error}") from error


def _shape(rule: _Rule) -> TokenShape | None:
    if rule.id in _LEFT_OUT or not rule.regex or not rule.keywords or _NAMED.search(rule.regex):
        return None
    regex = rule.regex
    for end in _ENDS:
        if regex.endswith(end):
            regex = regex.removesuffix(end) + r"(?![\w-])"
    flags = re.ASCII | (re.IGNORECASE if "(?i)" in regex else 0)
    # They are written for Go: its flags may stand anywhere, and its end of a text has another name.
    regex = regex.replace("(?i)", "").replace(r"\z", r"\Z")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        pattern = re.compile(regex, flags)
    return TokenShape(rule.id.replace("-", " "), tuple(word.lower() for word in rule.keywords), pattern)
