"""The real AI SDK v6 client judges the fold, the replay and the messages clew stores.

Every test draws streams from seeds, lets clew and the client work on them, and compares what they hold. All its
questions go to one node process; `reduce.mjs` says what can be asked.
"""

from __future__ import annotations

import copy
import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from clew.errors import IllegalChunk
from clew.transcript.chunk import CHUNK_TYPES, Chunk, chunk_dict
from clew.transcript.fold import Fold
from clew.transcript.partial_json import parse_partial_json
from clew.transcript.replay import replay
from tests.rig.streams import Run, random_runs, random_stream
from tests.rounds import rounds

pytestmark = pytest.mark.node

NODE = Path(__file__).parents[1] / "node"
STREAMS = rounds(180)
Figure = Callable[[str, object], None]


def ask(questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put questions to the client; as many answers, in order."""
    if not (NODE / "node_modules" / "ai").is_dir():
        pytest.fail("the real client is not installed in tests/node: run make test, which installs it", pytrace=False)
    lines = [json.dumps(question) for question in questions]
    asked = subprocess.run(
        ["node", "reduce.mjs"], cwd=NODE, input="\n".join(lines).encode(), capture_output=True, check=False
    )
    assert asked.returncode == 0, asked.stderr.decode()
    answers = [json.loads(line) for line in asked.stdout.decode().strip("\n").split("\n")]
    assert len(answers) == len(lines)
    return answers


def reduce(chunks: Iterable[Chunk], held: dict[str, Any] | None = None) -> dict[str, Any]:
    """What does a client make of these chunks, on top of a message it holds?"""
    question: dict[str, Any] = {"mode": "reduce", "chunks": [chunk_dict(chunk) for chunk in chunks]}
    return question if held is None else {**question, "message": held}


def folded(chunks: Iterable[Chunk]) -> Fold:
    return take(Fold("m1"), Run((), list(chunks)))


def take(fold: Fold, run: Run) -> Fold:
    for answer in run.answers:
        fold.answer(answer.tool_call_id, approved=answer.approved, reason=answer.reason)
    for chunk in run.chunks:
        fold.apply(chunk)
    return fold


def reopened(fold: Fold) -> Fold:
    """The fold of the next run on a stored message."""
    return Fold("m1", parts=fold.parts, metadata=fold.metadata)


def empty() -> dict[str, Any]:
    return {"id": "m1", "role": "assistant", "parts": []}


def kept(value: Any) -> Any:
    """A client's value as clew keeps it: halves of characters and U+0000 replaced, numbers of one kind."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "\ufffd")
    if isinstance(value, list):
        return [kept(item) for item in value]
    if isinstance(value, dict):
        return {kept(key): kept(item) for key, item in value.items()}
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def as_replayed(message: dict[str, Any]) -> dict[str, Any]:
    """What v6 can be told of a message: not how approvals were answered."""
    told = copy.deepcopy(message)
    for part in told["parts"]:
        if "approved" in part.get("approval", {}):
            del part["approval"]
            if part["state"] == "approval-responded":
                part["state"] = "input-available"
    return told


def assert_held(answers: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Every client took its whole stream and holds the message expected of it."""
    for number, (answer, message) in enumerate(zip(answers, expected, strict=True)):
        assert answer["refused"] is None, f"stream {number}"
        assert kept(answer["message"]) == kept(message), f"stream {number}"


@pytest.mark.rule("SV-6", "SV-2")
def test_the_fold_holds_what_the_client_holds(record_property: Figure) -> None:
    """Over a corpus that uses every chunk type, whole messages, and the errors the client was told of."""
    began = time.monotonic()
    streams = [random_stream(seed, size=20 + seed % 60) for seed in range(STREAMS)]
    types = Counter(f"{chunk.type[:5]}*" if chunk.type[:5] == "data-" else chunk.type for s in streams for chunk in s)
    assert set(types) == set(CHUNK_TYPES)
    folds = [folded(stream) for stream in streams]
    answers = ask(reduce(stream, empty()) for stream in streams)
    assert_held(answers, [fold.message() for fold in folds])
    assert [answer["errors"][-1:] for answer in answers] == [
        [] if fold.error_text is None else [fold.error_text] for fold in folds
    ]
    took = time.monotonic() - began
    record_property("figure", f"fold = client: {STREAMS} streams, {types.total()} chunks, {took:.1f} s")


@pytest.mark.rule("SR-2", "SV-6")
def test_a_replay_gives_the_client_the_stored_message(record_property: Figure) -> None:
    """The same corpus, from the stored message alone, by a client that held nothing."""
    folds = [folded(random_stream(seed, size=20 + seed % 60)) for seed in range(STREAMS)]
    replays = [list(replay(fold.message(), open_ids=fold.open_ids)) for fold in folds]
    assert_held(ask(map(reduce, replays)), [fold.message() for fold in folds])
    record_property("figure", f"replay = stored: {STREAMS} messages, {sum(map(len, replays))} chunks")


@pytest.mark.rule("SV-6")
def test_the_client_takes_stored_messages_without_translation() -> None:
    """Runs with answers in between. v6 refuses only a call that was denied though nobody had asked about it."""
    messages = []
    for seed in range(STREAMS):
        fold = Fold("m1")
        for run in random_runs(seed):
            take(fold, run)
            messages.append(fold.message())
            fold = reopened(fold)
    answers = ask({"mode": "validate", "messages": [message]} for message in messages)
    refused = [message for message, answer in zip(messages, answers, strict=True) if not answer["valid"]]
    unasked = [
        message
        for message in messages
        if any(part.get("state") == "output-denied" and "approval" not in part for part in message["parts"])
    ]
    assert refused == unasked
    assert 0 < len(refused) < len(messages) / 20


@pytest.mark.rule("SR-2")
def test_a_run_after_an_answer_goes_on_with_the_message(record_property: Figure) -> None:
    """A client that holds the answered message and reads the new stream holds what is stored; so does a reload."""
    live, reloaded, expected = [], [], []
    for seed in range(STREAMS):
        fold = Fold("m1")
        for number, run in enumerate(random_runs(seed)):
            take(fold, Run(run.answers, []))
            held = fold.message()
            take(fold, Run((), run.chunks))
            if number:
                live.append(reduce(run.chunks, held))
                reloaded.append(reduce(replay(fold.message(), open_ids=fold.open_ids)))
                expected.append(fold.message())
            fold = reopened(fold)
    assert_held(ask(live), expected)
    assert_held(ask(reloaded), [as_replayed(message) for message in expected])
    record_property("figure", f"runs after answers: {len(live)}")


@pytest.mark.rule("SR-2")
def test_a_replay_and_the_live_tail_join_at_every_chunk(record_property: Figure) -> None:
    """Wherever a viewer comes in, it ends with the stored message: no gap, nothing twice, nothing out of order."""
    questions, expected = [], []
    for seed in range(rounds(30)):
        fold = Fold("m1")
        for run in random_runs(seed, size=30):
            final = as_replayed(take(reopened(fold), run).message())
            fold = take(reopened(fold), Run(run.answers, []))
            for cut in range(len(run.chunks) + 1):
                joined = [*replay(fold.message(), open_ids=fold.open_ids), *run.chunks[cut:]]
                questions.append(reduce(joined))
                expected.append(final)
                if cut < len(run.chunks):
                    fold.apply(run.chunks[cut])
    assert_held(ask(questions), expected)
    record_property("figure", f"replay + tail = stored: {len(questions)} cuts")


@pytest.mark.rule("SV-2")
def test_what_the_client_refuses_is_refused(record_property: Figure) -> None:
    """Streams with chunks lost, doubled and swapped. The fold may be stricter, and says so; it is never laxer."""
    streams = [_damaged(random.Random(seed), random_stream(seed)) for seed in range(STREAMS)]
    answers = ask(reduce(stream, empty()) for stream in streams)
    outcomes: Counter[str] = Counter()
    for stream, answer in zip(streams, answers, strict=True):
        try:
            message = folded(stream).message()
        except IllegalChunk:
            outcomes["both refuse" if answer["refused"] else "only clew refuses"] += 1
        else:
            outcomes["both take"] += 1
            assert answer["refused"] is None
            assert kept(answer["message"]) == kept(message)
    assert min(outcomes["both refuse"], outcomes["both take"], outcomes["only clew refuses"]) > STREAMS / 50
    record_property("figure", f"damaged streams: {dict(outcomes)}")


def _damaged(chance: random.Random, stream: list[Chunk]) -> list[Chunk]:
    at = chance.randrange(len(stream))
    other = chance.randrange(len(stream))
    how = chance.choice(("lose", "double", "swap"))
    if how == "lose":
        return stream[:at] + stream[at + 1 :]
    if how == "double":
        return stream[: at + 1] + stream[at:]
    swapped = list(stream)
    swapped[at], swapped[other] = stream[other], stream[at]
    return swapped


def test_half_written_json_has_the_value_the_client_gives_it(record_property: Figure) -> None:
    """JSON cut anywhere, JSON with damage, and plain noise."""
    chance = random.Random(1)
    texts = [_json_text(chance, number) for number in range(rounds(5_000))]
    batches = [texts[at : at + 1000] for at in range(0, len(texts), 1000)]
    answers = ask({"mode": "partial", "texts": batch} for batch in batches)
    values = [value for answer in answers for value in answer["values"]]
    for text, theirs in zip(texts, values, strict=True):
        ours = parse_partial_json(text)
        assert kept({} if ours is UNSET else {"value": ours}) == kept(theirs), text
    some = sum(map(bool, values))
    assert len(texts) / 3 < some < len(texts) * 2 / 3
    record_property("figure", f"partial JSON = client's: {len(texts)} texts, {some} with a value")


_NOISE = [*'{}[]",:\\ \n0123456789eE+-.truefalsnxu', "\\u", "\\ud83d", "\\ude00", '"a":', "true", "null", "1e+5", '\\"']
_KEYS = ("a", "b", 'quote"', "back\\", "é", "__proto__", "constructor", "prototype")


def _json_text(chance: random.Random, number: int) -> str:
    if number % 4 == 0:
        return "".join(chance.choices(_NOISE, k=chance.randint(0, 14)))
    text = json.dumps(_json_value(chance, 4), ensure_ascii=chance.random() < 0.5, indent=chance.choice((None, 1)))
    text = text[: chance.randint(0, len(text))]
    for _ in range(chance.randint(0, 3) if number % 4 > 1 else 0):
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice(_NOISE) + text[at + chance.randint(0, 2) :]
    return text


def _json_value(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(10)
    if depth and kind < 3:
        return [_json_value(chance, depth - 1) for _ in range(chance.randint(0, 4))]
    if depth and kind < 6:
        keys = chance.choices(_KEYS, (8, 8, 4, 4, 4, 0.2, 1, 1), k=chance.randint(0, 4))
        return {key: _json_value(chance, depth - 1) for key in keys}
    word = "".join(
        chance.choices(("a", '"', "\\", "\n", "é", "😀", "/", "u", "{", ",", "\u2028"), k=chance.randint(0, 6))
    )
    return chance.choice((word, chance.randint(-(10**9), 10**9), chance.random() * 1e20, -0.5, True, False, None))
