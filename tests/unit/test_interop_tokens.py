"""Tokens of services are taken out of what leaves, wherever they stand; ordinary text stays as it is."""

from __future__ import annotations

import base64
import hashlib
import random
import re
import string
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.config import Config
from clew.interop.redact import Redaction, SecretPattern, secret_patterns
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from tests.rounds import rounds

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
ROOT = Path(__file__).resolve().parents[2]


def drawn(size: int, letters: str = ALNUM, seed: int = 7) -> str:
    chance = random.Random(f"{seed} {size} {letters}")
    return "".join(chance.choice(letters) for _ in range(size))


def _tokens() -> list[SecretPattern]:
    return [one for one in secret_patterns().patterns if one.token]


# Put together here, so that this file holds nothing that looks like one.
TOKENS = {
    "anthropic": f"sk-ant-api03-{drawn(93)}AA",
    "aws": f"AKIA{drawn(16, string.ascii_uppercase)}",
    "digitalocean": f"dop_v1_{drawn(64, HEX)}",
    "doppler": f"dp.pt.{drawn(43)}",
    "github": f"ghp_{drawn(36)}",
    "gitlab": f"glpat-{drawn(20)}",
    "google key": f"AIza{drawn(35)}",
    "google oauth secret": f"GOCSPX-{drawn(28)}",
    "google oauth token": f"ya29.{drawn(160)}",
    "groq": f"gsk_{drawn(52)}",
    "hugging face": f"hf_{drawn(34)}",
    "hugging face, letters": f"hf_{drawn(34, string.ascii_letters)}",
    "npm": f"npm_{drawn(36)}",
    "openai": f"sk-proj-{drawn(48)}",
    "pypi": f"pypi-AgEIcHlwaS5vcmc{drawn(120)}",
    "sendgrid": f"SG.{drawn(22)}.{drawn(43)}",
    "slack": f"xoxb-{drawn(11, '123456789')}-{drawn(12, '123456789')}-{drawn(24)}",
    "slack hook": f"https://hooks.slack.com/services/T{drawn(8)}/B{drawn(9)}/{drawn(24)}",
    "stripe": f"sk_live_{drawn(24)}",
    "stripe, restricted": f"rk_test_{drawn(99)}",
    "telegram": f"{drawn(10, '123456789')}:AA{drawn(33)}",
    "xai": f"xai-{drawn(80)}",
}
AROUND = (
    "{}",
    "use {} for this",
    "it is {}, I think",
    "({})",
    "<{}>",
    "`{}`",
    '{{"key": "{}"}}',
    "at the end: {}.",
    "a\n{}\n",
)


@pytest.mark.parametrize("kind", sorted(TOKENS))
def test_the_token_of_a_common_service_is_taken_out_wherever_it_stands(kind: str) -> None:
    """In prose, in code, in JSON, before a comma: nothing of it is left, the words around it are."""
    token = TOKENS[kind]
    for around in AROUND:
        redaction = Redaction()
        left = redaction.text(around.format(token))
        assert (token[-10:] in left, redaction.count) == (False, 1), (around, left)
        assert re.sub(r"(https://)?\[redacted: [a-z0-9 ]+\]", "{}", left) in (around.format("{}"), around), left
        assert Redaction().text(left) == left


async def test_an_export_that_is_redacted_holds_none_of_them() -> None:
    """Said by the user, by the model, and in the system prompt: as everybody exports it."""
    told = " and ".join(TOKENS.values())
    providers = FakeProviders(ScriptedModel([say(told)]))
    async with clew.open("memory:", config=Config(), providers=providers) as engine:
        session = await engine.create_session(metadata={"system_prompt": told, "title": "keys"})
        async for _ in engine.run(session.id, f"mine: {told}"):
            pass
        for form in ("json", "md", "html"):
            exported = str(await engine.export(session.id, format=form, redact=True))
            assert [kind for kind, token in TOKENS.items() if token[-10:] in exported] == []


def honest() -> Iterator[str]:
    """What sessions are full of, and is nobody's secret."""
    chance = random.Random(1)
    for number in range(300):
        yield hashlib.sha256(str(number).encode()).hexdigest()
        yield hashlib.sha1(str(number).encode()).hexdigest()
        yield str(uuid.UUID(int=chance.getrandbits(128)))
        kind = chance.choice(("ses", "msg", "trn", "prt", "apr"))
        yield f"{kind}_{drawn(12, HEX, number)}{drawn(14, ALNUM, number)}"
    for _ in range(40):
        # Images have long runs of the same byte, which is where encoded text repeats itself.
        picture = bytes(chance.choice((0, 0, 0, 255, 16, chance.getrandbits(8))) for _ in range(4_000))
        for data in (picture, chance.randbytes(4_000)):
            text = base64.b64encode(data).decode()
            yield f"data:image/png;base64,{text}"
            yield "\n".join(text[at : at + 76] for at in range(0, len(text), 76))
            yield base64.urlsafe_b64encode(data).decode()
    for path in sorted((ROOT / "src").rglob("*.py")) + sorted((ROOT / "docs").glob("*.md")):
        yield path.read_text(encoding="utf-8")


def test_no_ordinary_text_is_taken_for_a_token(record_property: Any) -> None:
    """Hashes, ids, encoded pictures, the code and the pages of clew itself."""
    found, size = [], 0
    for text in honest():
        size += len(text)
        lowered = text.lower()
        for shape in _tokens():
            if any(word in lowered for word in shape.keywords):
                found += [(shape.kind, match[0]) for match in shape.pattern.finditer(text)]
    record_property("figure", f"{len(_tokens())} shapes of tokens over {size / 1e6:.1f} MB of ordinary text: 0 found")
    assert found == []


def test_a_text_of_nothing_but_beginnings_of_tokens_takes_time_in_proportion(record_property: Any) -> None:
    """Each of them over and over, with and without what could follow: none makes a search go back again and again."""
    words = sorted({word for shape in _tokens() for word in shape.keywords})
    took = {}
    for size in (50_000, 200_000):
        began = time.process_time()
        for word in words[::6]:
            for piece in (word, f"{word}a1-", f"{word.upper()}/"):
                text = piece * (size // len(piece) // 10)
                for shape in _tokens():
                    if any(one in text.lower() for one in shape.keywords):
                        shape.pattern.sub("", text)
        took[size] = time.process_time() - began
    ratio = took[200_000] / took[50_000]
    record_property("figure", f"shapes of tokens over their own beginnings: 4 times as much, {ratio:.1f} times as long")


def plainly_redacted(text: str) -> str:
    """Every pattern tried on every text, one after the other."""
    redaction = Redaction()
    for one in secret_patterns().patterns:
        text = one.pattern.sub(redaction._mark(one.kind, whole=one.token), text)
    return text


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, rounds(6)))])
def test_what_is_tried_only_where_a_word_stands_finds_no_less_than_what_is_tried_everywhere(seed: int) -> None:
    """Random texts of tokens, telling names, signs, letters that have another case, and marks of what was taken out."""
    chance = random.Random(seed)
    names = [
        "password",
        "PASSWD",
        "pa\u017f\u017fword",
        "passphra\u017fe",
        "\u017fecret",
        "api_key",
        "apI-Key",
        "ap\u0131key",
    ]
    names += [
        "AP\u0130_KEY",
        "api\u212aey",
        "access-key",
        "private_key",
        "refresh_token",
        "ID-TO\u212aEN",
        "author\u0131zation",
    ]
    around = [
        '="',
        "='",
        ": '",
        '\\": \\"',
        "=",
        " : ",
        "\n",
        " ",
        ", ",
        "https://me:",
        "@host",
        "bearer ",
        "[redacted: jwt]",
    ]
    words = [*names, *around, *TOKENS.values(), "hunter2hunter2", "-----BEGIN RSA PRIVATE KEY-----", "word", "x" * 40]
    found = 0
    for _ in range(60):
        text = "".join(chance.choice(words) + chance.choice(["", "", " "]) for _ in range(chance.randrange(1, 12)))
        redaction = Redaction()
        assert [redaction.text(text), redaction.text(text)] == [plainly_redacted(text)] * 2, text
        found += redaction.count
    assert found > 60


@pytest.mark.slow
def test_in_ordinary_text_too_no_less_is_found_than_where_everything_is_tried() -> None:
    """Our own documents."""
    for path in ROOT.glob("docs/*.md"):
        text = path.read_text()
        assert Redaction().text(text) == plainly_redacted(text)
