"""What pictures take, by the numbers the providers publish."""

from __future__ import annotations

import pytest

from clew.providers.registry import file_rule
from clew.transcript.file_rule import image_tokens, page_tokens


def of(**noted: object) -> dict[str, object]:
    return {"type": "file", "providerMetadata": {"clew": noted}}


@pytest.mark.rule("US-3")
@pytest.mark.parametrize(
    ("model", "taken"),
    [
        ("claude-sonnet-4-6", {(200, 200): 64, (1000, 1000): 1296, (1920, 1080): 1560, (1075, 1520): 33 * 47}),
        ("claude-opus-4-7", {(200, 200): 64, (2000, 1500): 3888, (3840, 2160): 4784, (2160, 3840): 4784}),
        ("gpt-5.2", {(1024, 1024): 1024, (1800, 2400): 1452, (1, 1): 1}),
        ("gpt-4o", {(1024, 1024): 765, (2048, 4096): 1105, (4096, 8192): 1105, (100, 100): 255}),
        ("gpt-5.5", {(256, 256): 77, (3840, 2160): 9792, (4032, 3024): 11868}),
        ("openai/gpt-6-astra", {(4032, 3024): 14364}),
        ("o4-mini", {(1024, 1024): 1762}),
    ],
)
def test_a_picture_takes_what_its_provider_says(model: str, taken: dict[tuple[int, int], int]) -> None:
    """The examples of their documentation, and of the newest what was measured."""
    rule = file_rule(model)
    assert {size: image_tokens(of(width=size[0], height=size[1]), rule) for size in taken} == taken


@pytest.mark.parametrize(
    ("model", "most"),
    [
        ("claude-3-5-haiku-20241022", 1568),
        ("claude-opus-4-20250514", 1568),
        ("anthropic/claude-sonnet-4.5", 1568),
        ("claude-haiku-5-5", 4784),
        ("gpt-5.1-codex-mini", 2489),
        ("gpt-5.1", 70 + 16 * 140),
        ("gpt-6.1-sol", 36_000),
    ],
)
def test_no_size_takes_more_than_the_most_of_its_model(model: str, most: int) -> None:
    sizes = [(2**31, 2**31), (65_535, 65_535), (65_535, 1), (1, 65_535), (10**18, 3), (2_577, 2_575)]
    found = [image_tokens(of(width=width, height=height), file_rule(model)) for width, height in sizes]
    assert all(one is not None and 0 < one <= most for one in found), found
    assert page_tokens(of(pages=10**9), file_rule(model)) == 600 * (file_rule(model).page or 0)


def test_what_is_not_known_is_not_guessed() -> None:
    rules = [file_rule("llava"), file_rule("claude-opus-5")]
    parts = [of(size=3), of(width=3), of(width=0, height=3), of(pages=0)]
    assert {image_tokens(part, rule) for part in parts for rule in rules} == {None}
    assert {page_tokens(part, rule) for part in parts for rule in rules} == {None}
    assert image_tokens(of(width=3, height=3), rules[0]) is None
