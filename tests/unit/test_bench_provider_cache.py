"""The providers' caches that the bench simulates: their rules, by small examples. 4 characters are a token."""

from __future__ import annotations

import pytest

from bench.provider_cache import AnthropicCache, Bill, Block, OpenAICache

K = "x" * 4_096
"""1,024 tokens."""


def test_a_prefix_is_written_at_a_mark_and_read_at_the_next_request() -> None:
    """What follows the last mark costs the full price, both times."""
    cache = AnthropicCache()
    asked = [Block(K), Block(K, marked=True), Block("12345678")]
    assert [cache.ask(asked, 0), cache.ask(asked, 200)] == [Bill(full=2, written=2_048), Bill(full=2, read=2_048)]


def test_a_longer_conversation_reads_what_was_written_and_writes_the_rest() -> None:
    """The mark moves on with the end, and the prefix before it is found by looking back."""
    cache = AnthropicCache()
    cache.ask([Block(K), Block(K, marked=True)], 0)
    assert cache.ask([Block(K), Block(K), Block(K, marked=True)], 10) == Bill(read=2_048, written=1_024)


def test_a_change_in_front_makes_all_of_it_new() -> None:
    """A prefix is exact, whatever stays the same behind it."""
    anthropic, openai = AnthropicCache(), OpenAICache()
    for cache in (anthropic, openai):
        cache.ask([Block(K), Block(K, marked=True)], 0)
    other = [Block("y" + K[1:]), Block(K, marked=True)]
    assert (anthropic.ask(other, 10), openai.ask(other, 10)) == (Bill(written=2_048), Bill(full=2_048))


@pytest.mark.parametrize(("added", "read"), [(19, 1_024), (20, 0)])
def test_a_prefix_more_than_twenty_blocks_back_is_not_found(added: int, read: int) -> None:
    """The marked block is the first of the twenty."""
    cache = AnthropicCache()
    cache.ask([Block(K, marked=True)], 0)
    new = [Block("1234") for _ in range(added - 1)]
    asked = [Block(K), *new, Block("1234", marked=True)]
    assert cache.ask(asked, 10) == Bill(read=read, written=1_024 + added - read)


def test_an_earlier_mark_is_looked_back_from_too() -> None:
    """Tools and system stay in the cache when the conversation behind them is another one."""
    cache = AnthropicCache()
    cache.ask([Block(K, marked=True), Block(K, marked=True)], 0)
    assert cache.ask([Block(K, marked=True), Block("y" * 40, marked=True)], 10) == Bill(read=1_024, written=10)


def test_a_prefix_lasts_five_minutes_from_its_last_use() -> None:
    """Reading it counts as use."""
    cache = AnthropicCache()
    asked = [Block(K, marked=True)]
    written, read = Bill(written=1_024), Bill(read=1_024)
    assert [cache.ask(asked, at) for at in (0, 290, 580, 881)] == [written, read, read, written]


def test_a_short_prefix_is_not_kept() -> None:
    """It costs the full price each time, and the least goes by the model."""
    cache = AnthropicCache(min_tokens=4_096)
    asked = [Block(K, marked=True)]
    assert [cache.ask(asked, 0), cache.ask(asked, 1)] == [Bill(full=1_024)] * 2


def test_a_request_with_five_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="5 marks"):
        AnthropicCache().ask([Block(K, marked=True)] * 5, 0)


def test_automatic_prefixes_count_from_1024_tokens_in_steps_of_128() -> None:
    """No mark is needed, nothing is billed for writing, and a beginning is read from a longer request too."""
    cache = OpenAICache()
    cache.ask([Block("x" * 4 * 1_023)], 0)
    sizes = (1_023, 1_300, 1_300, 1_200)
    assert [cache.ask([Block("x" * 4 * size)], 1) for size in sizes] == [
        Bill(full=1_023),
        Bill(full=1_300),
        Bill(full=20, read=1_280),
        Bill(full=48, read=1_152),
    ]


def test_a_bill_is_weighed_by_the_price_of_each_kind() -> None:
    bill = Bill(full=100, read=100, written=100)
    weights = AnthropicCache().weigh(bill), OpenAICache().weigh(bill), OpenAICache(read=0.5).weigh(bill)
    assert weights == pytest.approx((235.0, 110.0, 150.0))
