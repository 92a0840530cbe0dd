"""Malformed inputs for every HTTP operation, the permission rules, import, streams, and JSON.

An input breaks a guarantee if the response is a 5xx or not in the API's document, if a refused input writes something,
if an error without a code is raised, or if it takes more than a second of CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os.path
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import quote

from clew.errors import ClewError
from clew.permissions.evaluate import evaluate
from clew.session.history.check import check
from clew.transcript.chunk import ReasoningStart, chunk_dict, parse_chunk
from clew.transcript.chunk_sanitizer import ChunkSanitizer
from clew.transcript.fold import Fold
from clew.transcript.partial_json import parse_partial_json
from clew.transcript.replay import replay
from clew.transcript.rule import Rule, Target
from tests.corpora import options
from tests.integration.http_document import document
from tests.integration.http_fuzzed import BAD_IDS, OPERATIONS, Fuzzed, bodies, fuzzing, id_of
from tests.integration.http_values import HOSTILE
from tests.rig.budget import Budget, Outcome
from tests.rig.mutate import fitting_value, mutated_bytes, mutated_text, mutated_value
from tests.rig.streams import random_stream

__all__ = ["BATCH", "ROUNDS", "SUBJECTS", "Fuzzing", "figure", "run"]

ROUNDS: Final = 50_000
BATCH: Final = 500
"""Number of inputs per server."""
SUBJECTS: Final = ("http", "permissions", "http", "import", "http", "chunks", "http", "permissions", "http", "json")
_LIMIT_S: Final = 1.0
_PATIENCE_S: Final = 60.0

_OPERATIONS: Final = [one for one in OPERATIONS if one != ("GET", "/api/events")]
_CORPORA: Final = Path(__file__).resolve().parents[1] / "corpora"
_SHELL: Final = (
    *("$x", "${x:-y}", "$(", ")", "`", ";", "&&", "||", "|", "&", ">", "<", "<<E", "'", '"', "\\", "\n", "*", "?", "["),
    *(
        "~",
        "{a,b}",
        "{" * 40,
        "(" * 40,
        "$_",
        "--output=f",
        " -c x ",
        "IFS=",
        "eval ",
        "env ",
        "\x00",
        "\u202e",
        "é",
        "#",
    ),
)
_RULES: Final = [
    *(
        Rule("bash", pattern, "allow")
        for pattern in ("git log*", "git *", "ls*", "cat *", "echo *", "sort *", "find *")
    ),
    Rule("bash", "rm *", "deny"),
    Rule("read", "./**", "allow"),
    Rule("bash", "curl *", "ask"),
]


class _Hangs(Exception):
    """An input did not finish."""


class Fuzzing:
    """A server and the other targets, for the rounds of a batch."""

    def __init__(self, server: Fuzzed, exported: list[bytes]) -> None:
        self._server = server
        self._exported = exported
        self._lines = [
            line.rsplit("\t", 1)[-1]
            for path in sorted(_CORPORA.glob("*.txt"))
            for line in path.read_text(encoding="utf-8").split("\n")
            if line and not line.startswith("#")
        ]
        self._corpus = list(bodies().values())

    async def feed(self, seed: int) -> str:
        """Send one input and return the result. Any exception is a broken guarantee."""
        random = Random(seed)
        match SUBJECTS[seed % len(SUBJECTS)]:
            case "http":
                return await self._http(random)
            case "permissions":
                return self._permissions(random)
            case "import":
                return await self._import(random)
            case "chunks":
                return _chunks(random, seed)
            case _:
                return self._json(random)

    async def _http(self, random: Random) -> str:
        method, path = random.choice(_OPERATIONS)
        operation = document()["paths"][path][method.lower()]
        query = []
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "query" and random.random() < 0.5:
                fits = random.random() < 0.5
                value = fitting_value(parameter["schema"], random) if fits else random.choice(HOSTILE)
                text = value if isinstance(value, str) else json.dumps(value)
                query.append(f"{parameter['name']}={quote(text.encode(errors='replace'), safe='')}")
        known = self._server.known
        ids = {
            name: random.choice(BAD_IDS) if random.random() < 0.15 else id_of(path, name, known)
            for name in re.findall(r"{(\w+)}", path)
        }
        body = self._body(operation, random)
        answer = await self._server.ask(method, path.format(**ids) + (f"?{'&'.join(query)}" if query else ""), body)
        return f"http {answer.status // 100}xx"

    def _body(self, operation: dict[str, Any], random: Random) -> Any:
        """Return a valid or mutated value, its mutated bytes, or arbitrary bytes."""
        if "requestBody" not in operation:
            return random.choice((None, None, None, b"{", b"\x00" * 1000))
        value = fitting_value(operation["requestBody"]["content"]["application/json"]["schema"], random)
        value = self._with_ids(value, random)
        how = random.random()
        if how < 0.2:
            return value
        if how < 0.6:
            return mutated_value(value, random, random.randint(1, 3))
        if how < 0.9:
            return mutated_bytes(json.dumps(value).encode(), random)
        return random.choice(self._corpus)

    def _with_ids(self, value: Any, random: Random) -> Any:
        if isinstance(value, dict) and random.random() < 0.7:
            known = self._server.known
            own = {"id": known["id"], "from_message_id": known["message_id"], "turn_id": known["turn"]}
            own["message_id"] = known["message_id"]
            return {**value, **{name: own[name] for name in value.keys() & own.keys()}}
        return value

    def _permissions(self, random: Random) -> str:
        if random.random() < 0.4:
            # A variant of a dangerous option: even permissive rules must not allow it.
            problem = options.judge(next(options.mutations(random)))
            if problem:
                raise AssertionError(problem)
            return "permissions trick"
        line = mutated_text(random.choice(self._lines), self._lines, _SHELL, random)
        kind, permission = random.choice((("command", "bash"), ("command", "bash"), ("path", "read"), ("host", "web")))
        target = Target(permission, kind, line)  # type: ignore[arg-type]
        rules = [*_RULES, Rule(permission, random.choice(self._lines)[:200], random.choice(("allow", "deny")))]
        decision = evaluate([target], session=rules, workspace="/w", resolve=os.path.normpath)
        if "could not be evaluated" in (decision.reason or ""):
            raise AssertionError(f"{decision.reason}: {line!r}")
        return f"permissions {decision.action}"

    async def _import(self, random: Random) -> str:
        data = random.choice(self._exported)
        if random.random() < 0.5:
            data = mutated_bytes(data, random)
        else:
            lines = data.split(b"\n")
            index = random.randrange(len(lines))
            with contextlib.suppress(ValueError):
                mutated = mutated_value(json.loads(lines[index]), random, random.randint(1, 3))
                lines[index] = json.dumps(mutated).encode()
            data = b"\n".join(lines)
        engine = self._server.client.engine
        await self._server.settle()
        for _ in range(3):
            before = self._server.written()
            try:
                session = await engine.import_session(data)
                break
            except ClewError:
                # A checkpoint looks like a write, so try again before reporting one.
                if self._server.written() == before:
                    return "import refused"
        else:
            raise AssertionError("a refused import has written something")
        await engine.messages(session.id, view="all")
        await engine.export(session.id)
        problems = [one for one in await check(engine.store) if one.session_id == session.id]
        await engine.delete_session(session.id)
        if problems:
            raise AssertionError(f"an accepted import is invalid: {problems[0]}")
        return "import taken"

    def _json(self, random: Random) -> str:
        text = json.dumps(fitting_value({}, random), ensure_ascii=random.random() < 0.5)
        if random.random() < 0.7:
            data = mutated_bytes(random.choice((text.encode(errors="surrogatepass"), *self._corpus[:20])), random)
            text = data.decode(errors=random.choice(("replace", "surrogateescape")))
        parse_partial_json(text[: random.randint(0, len(text))])
        return "json"


def _chunks(random: Random, seed: int) -> str:
    """Send a stream with mutated chunks through the sanitizer and the fold, and replay it."""
    sanitizer, fold, refused = ChunkSanitizer(), Fold("m1"), 0
    for chunk in random_stream(seed, size=30):
        wire: Any = chunk_dict(chunk)
        if random.random() < 0.3:
            wire = mutated_value(wire, random, random.randint(1, 2))
        try:
            for clean in sanitizer.clean(parse_chunk(wire)):
                fold.apply(clean)
        except ClewError:
            refused += 1
    for clean in sanitizer.left_over():
        with contextlib.suppress(ClewError):
            fold.apply(clean)
    again = Fold("m1")
    replayed = list(replay(fold.message(), open_ids=fold.open_ids))
    reasonings = [chunk.id for chunk in replayed if isinstance(chunk, ReasoningStart)]
    if len(set(reasonings)) == len(reasonings):
        # The client replaces an id that was left open and used again; the fold is stricter.
        for chunk in replayed:
            again.apply(chunk)
    json.dumps(fold.message())
    return "chunks, some refused" if refused else "chunks"


# The campaign


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    """Abort what takes too long by the clock, including busy loops."""

    def ring(*_: object) -> None:
        raise _Hangs(f"it took more than {_PATIENCE_S:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


async def exports() -> list[bytes]:
    """Return exported sessions in both formats, to be mutated."""
    async with fuzzing() as made:
        engine, session_id = made.client.engine, made.known["id"]
        return [await engine.export(session_id, "json"), await engine.export(session_id, "jsonl")]


async def _batch(
    first: int, rounds: int, folder: Path, exported: list[bytes], budget: Budget, outcome: Outcome
) -> None:
    # Every other server uses a file.
    path = folder / str(first) if first // BATCH % 2 else None
    if path is not None:
        path.mkdir()
    async with fuzzing(path) as server:
        fuzzed = Fuzzing(server, exported)
        for seed in range(first, first + rounds):
            if budget.spent:
                return
            subject = SUBJECTS[seed % len(SUBJECTS)]
            began = time.process_time()
            try:
                with _patience():
                    outcome.counts[f"came: {await fuzzed.feed(seed)}"] += 1
            except Exception as error:
                outcome.counts["broken"] += 1
                outcome.broken.append(f"seed {seed}: {subject}: {type(error).__name__}: {str(error)[:600]}")
            took = time.process_time() - began
            outcome.counts["rounds"] += 1
            outcome.counts[subject] += 1
            outcome.counts["slowest ms"] = max(outcome.counts["slowest ms"], round(took * 1000))
            if took > _LIMIT_S:
                outcome.counts["slow"] += 1
                outcome.broken.append(f"seed {seed}: {subject}: it took {took:.1f} s of CPU")


def run(budget: Budget) -> Outcome:
    outcome = Outcome()
    exported = asyncio.run(exports())
    with tempfile.TemporaryDirectory(prefix="clew-fuzz-") as folder:
        for first, rounds in budget.batches(BATCH):
            asyncio.run(_batch(first, rounds, Path(folder), exported, budget, outcome))
    return outcome


def figure(counts: Counter[str]) -> str:
    subjects = ", ".join(f"{name} {counts[name]}" for name in dict.fromkeys(SUBJECTS))
    results = ", ".join(f"{name[6:]} {n}" for name, n in sorted(counts.items()) if name.startswith("came: "))
    return (
        f"fuzz: {counts['rounds']} inputs ({subjects}), {counts['broken']} broke something, "
        f"{counts['slow']} took more than a second ({results})"
    )
