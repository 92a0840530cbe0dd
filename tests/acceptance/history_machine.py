"""A machine that does to a conversation whatever can be done, and looks after each step that nothing is lost."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import orjson

import clew
from clew.errors import ClewError, InternalError, InvalidInput
from clew.providers.base import ModelInfo, ModelRequest
from clew.session.history.check import check
from clew.session.history.lookup import locate_message
from clew.session.history.rewind_plan import RewindMode
from clew.testing.scenario import Scenario
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, fail, say, then, think, wait
from clew.tools.decorator import tool
from clew.transcript.line import LineTurn, line_messages
from clew.transcript.message import MessageRow
from clew.transcript.metadata import local_place, merge
from clew.transcript.session import Model
from clew.transcript.usage import Usage
from clew.transcript.view import compaction_data, compactions_of
from tests.acceptance.conversations import summarise
from tests.acceptance.in_force import cuts_of, holds, in_force_then
from tests.acceptance.parts_told import judge_kept, judge_told, said_on_line, sent_messages
from tests.readers import reader_001, reader_003
from tests.rig.history_child import SUMMARY, look

MODEL: Final = Model("test", "model")
WINDOWS: Final = (3_600, 4_400, 6_000, 30_000)
"""The prompt and the tools take about half of the smallest."""
MAX_SESSIONS: Final = 5
SETTINGS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"preset": "checkpoint"},
    {"preset": "checkpoint", "pruning": {"min_chars": 300, "min_total_chars": 0, "keep_chars": 100}},
    {"keep_recent_tokens": 300},
    {"tail_turns": 1},
    {"pruning": {"enabled": False}},
    {"enabled": False},
)
ACTIONS: Final = (
    *("prompt",) * 8,
    *("rewind", "unrewind", "goto", "branch", "compact") * 2,
    *("abort", "answer", "deny", "send_edited", "again", "there_and_back", "slice", "fork", "queue", "go_on"),
    *("prune", "prune", "restart", "settings"),
)
GOING_BACK: Final = (
    *("prompt", "condense", "rewind") * 4,
    *("branch", "send_edited", "again", "branch", "there_and_back") * 2,
    *("unrewind", "goto", "fork", "slice", "compact"),
)
"""What is done most where summaries are gone back before, and inside of what they kept."""
_IDS: Final = re.compile(rb'"((?:msg|trn)_[0-9a-f]{12}[0-9A-Za-z]{14})')


@tool
async def touch(number: int) -> str:
    """Change something; somebody has to allow it."""
    return f"touched {number}"


class Machine:
    """A few sessions of one store, and what is remembered of them from one step to the next."""

    def __init__(
        self, folder: Path, seed: int, *, kind: str, settings: Mapping[str, Any], url: str | None = None
    ) -> None:
        self.rng = Random(seed)
        self.path = folder / "store"
        self.kind = kind
        usual = {"memory": "memory:", "sqlite": f"sqlite:///{self.path}"}.get(kind, f"{kind}:{self.path}")
        self.url = url or usual
        self.settings = settings
        self.config = clew.Config()
        self.sessions: list[str] = []
        self.partial: set[str] = set()
        """Sessions that hold only a slice of another's line, so that a summary may be missing."""
        self.undoable: dict[str, tuple[MessageRow, ...]] = {}
        """The rows before the newest rewind, while nothing else was done."""
        self.happened: Counter[str] = Counter()
        self.model = ScriptedModel(otherwise=self.reply)
        self.gate: Gate | None = None
        self.said = 0
        self.stubborn = 0
        self.engine: clew.Engine
        self._context: Any

    async def open(self) -> None:
        info = ModelInfo(model=MODEL, window=self.rng.choice(WINDOWS), max_output=800, summariser=MODEL)
        providers = FakeProviders(self.model, infos=[info])
        self._context = clew.open(self.url, config=self.config, providers=providers, tools=[look, touch])
        self.engine = await self._context.__aenter__()
        if not self.sessions:
            metadata = {"compaction": dict(self.settings), **local_place(None)}
            self.sessions.append((await self.engine.create_session(title="history", metadata=metadata)).id)

    async def close(self) -> None:
        await self._context.__aexit__(None, None, None)

    # The model

    def words(self, *sizes: int) -> str:
        self.said += 1
        return f"{self.said} " + "word " * (self.rng.choice(sizes) // 5)

    def reply(self, request: ModelRequest) -> Any:
        if not request.tools:
            return self._summary()
        gate, self.gate = self.gate, None
        chars = len(request.system) + len(orjson.dumps([message.parts for message in request.messages])) + 2_500
        return then(*self._pieces(gate), usage=Usage(input=chars // 4, output=self.rng.randint(1, 100)))

    def _summary(self) -> Any:
        kind = self.rng.random()
        if kind < 0.1:
            return fail(400)
        return say("no summary at all" if kind < 0.2 else SUMMARY.format(goal=self.words(10, 60)))

    def _pieces(self, gate: Gate | None) -> list[Any]:
        if gate is not None:
            return [say(self.words(20)), wait(gate), say(self.words(20))]
        if self.stubborn:
            self.stubborn -= 1
            return [call("look", {"number": 0, "size": 800})]
        kind = self.rng.random()
        if kind < 0.04:
            # The same again and again, until it is warned, and perhaps after that too.
            self.stubborn = self.rng.randint(2, 5)
        if kind < 0.35:
            looks = [self._look() for _ in range(self.rng.choice((1, 1, 2)))]
            return [*([say(self.words(20, 300))] if self.rng.random() < 0.5 else []), *looks]
        if kind < 0.43:
            self.said += 1
            return [self._look(), call("touch", {"number": self.said})]
        if kind < 0.48:
            return [say(self.words(20)), fail(400)]
        if kind < 0.51:
            return [fail(400, "too long", kind="overflow")]
        return [*([think(self.words(40))] if kind < 0.6 else []), say(self.words(10, 200, 1_500))]

    def _look(self) -> Any:
        self.said += 1
        return call("look", {"number": self.said, "size": self.rng.choice((20, 500, 2_000, 6_000))})

    # Steps

    async def act(self, action: str) -> None:
        # The first one most often, so that it gets a long past.
        session_id = self.rng.choice((*self.sessions, *self.sessions[:1] * len(self.sessions)))
        undoable = self.undoable.pop(session_id, None)
        try:
            if action == "unrewind":
                await self.do_unrewind(session_id, undoable)
            else:
                await getattr(self, "do_" + action)(session_id)
        except InternalError:
            raise
        except ClewError as error:  # a refusal is an answer; what matters is the state it leaves
            self.happened[type(error).__name__] += 1
        for one in self.sessions:
            await self.quiet(one)

    async def quiet(self, session_id: str) -> None:
        """Until nothing runs, and nothing is about to."""
        while True:
            async with self.engine._runtime.sessions.lock(session_id):
                if self.engine.is_idle(session_id):
                    return
            await asyncio.sleep(0)

    async def held(self, session_id: str, gate: Gate) -> None:
        """Until the model stops at the gate, or the run ended before it got there."""
        reached = asyncio.create_task(gate.reached.wait())
        ended = asyncio.create_task(self.quiet(session_id))
        await asyncio.wait({reached, ended}, return_when=asyncio.FIRST_COMPLETED)
        for task in (reached, ended):
            task.cancel()

    async def do_prompt(self, session_id: str) -> None:
        await self.engine.submit(session_id, self.words(10, 10, 200, 1_000, 4_000))

    async def do_abort(self, session_id: str) -> None:
        self.gate = gate = Gate()
        await self.engine.submit(session_id, self.words(10, 500))
        await self.held(session_id, gate)
        self.gate = None
        await self.engine.abort(session_id)

    async def do_queue(self, session_id: str) -> None:
        self.gate = gate = Gate()
        await self.engine.submit(session_id, self.words(10))
        await self.held(session_id, gate)
        for _ in range(self.rng.randint(1, 3)):
            await self.engine.submit(session_id, self.words(10, 500))
        waiting = await self.engine.queue(session_id)
        if waiting and self.rng.random() < 0.3:
            await self.engine.cancel_queued(session_id, self.rng.choice(waiting).id)
        self.gate = None
        gate.set()

    async def do_go_on(self, session_id: str) -> None:
        await self.engine.continue_turn(session_id)

    async def do_answer(self, session_id: str) -> None:
        await self._answer(session_id, "once")

    async def do_deny(self, session_id: str) -> None:
        await self._answer(session_id, "deny")

    async def _answer(self, session_id: str, decision: Any) -> None:
        for one in (await self.engine.get_status(session_id)).waiting:
            self.happened["answered"] += 1
            await self.engine.answer(session_id, str(one.approval_id), decision)

    async def do_rewind(self, session_id: str) -> None:
        target = await self._user_message(session_id)
        mode: RewindMode = self.rng.choice(("resend", "edit"))
        run = mode == "resend" and self.rng.random() < 0.3
        before, moves = await self.rows(session_id), await self._moves(session_id)
        waited = (await self.engine.get_status(session_id)).waiting
        strange = await self._taken_back(session_id)
        go_back = partial(self.engine.rewind, session_id, target, mode=mode, run=run)
        await self._keeping_the_summary(session_id, target, go_back)
        self.happened["rewound"] += 1
        assert await self._taken_back(session_id) <= strange, "a summary tells of what was taken back"
        if not run and not waited and await self._moves(session_id) == moves + 1:
            self.undoable[session_id] = before

    async def _taken_back(self, session_id: str) -> set[str]:
        """Messages that a summary on the line tells of, and that are not on it."""
        line = (await self.engine.store.load_line(session_id)).turns
        held = {row.id for entry in line for row in entry.messages}
        return {
            message.id
            for compaction in compactions_of(line)
            for message in (await self.engine.compaction(session_id, compaction.marker.id)).messages
            if message.id not in held
        }

    async def do_send_edited(self, session_id: str) -> None:
        target = await self._user_message(session_id)
        text = self.words(10, 800)
        go_back = partial(self.engine.rewind, session_id, target, mode="edit", text=text, run=True)
        await self._keeping_the_summary(session_id, target, go_back)
        self.happened["edited"] += 1

    async def do_again(self, session_id: str) -> None:
        line = (await self.engine.store.load_line(session_id)).turns
        target = next((entry.messages[0].id for entry in reversed(line) if entry.turn.kind == "normal"), None)
        if target is not None:
            ask_again = partial(self.engine.continue_turn, session_id, mode="again")
            await self._keeping_the_summary(session_id, target, ask_again)
            self.happened["asked again"] += 1

    async def _keeping_the_summary(
        self, session_id: str, target: str, go_back: Callable[[], Coroutine[Any, Any, object]]
    ) -> None:
        async def done() -> None:
            await go_back()
            await self.quiet(session_id)

        self.happened["carried"] += await holds(self.engine.store, session_id, target, done)

    async def do_unrewind(self, session_id: str, before: tuple[MessageRow, ...] | None) -> None:
        await self.engine.unrewind(session_id)
        self.happened["unrewound"] += 1
        if before is not None:
            self.happened["restored"] += 1
            assert await self.rows(session_id) == before

    async def do_there_and_back(self, session_id: str) -> None:
        await self.do_rewind(session_id)
        before = self.undoable.pop(session_id, None)
        if before is not None:
            await self.judge_session(session_id)
            await self.do_unrewind(session_id, before)

    async def do_goto(self, session_id: str) -> None:
        reflog = await self.engine.reflog(session_id)
        tree = await self.engine.store.load_tree(session_id)
        places = [entry.to_turn_id for entry in reflog] or [None]
        if self.rng.random() < 0.3:
            places = [None, *tree.turns]
        await self.engine.set_head(session_id, self.rng.choice(places))
        self.happened["went"] += 1

    async def do_compact(self, session_id: str) -> None:
        done = await self.engine.compact(session_id, self.rng.choice((None, "the words")))
        self.happened["compacted by hand"] += done.compacted

    async def do_condense(self, session_id: str) -> None:
        """A summary that is cut wherever one may be: at a message, or at a step of one, from the last cut on."""
        scenario = Scenario(self.engine, self.model, self.path.parent)
        scenario.session = await self.engine.get_session(session_id)
        cuts = cuts_of((await self.engine.store.load_line(session_id)).turns)
        if cuts and (await self.engine.store.load_tree(session_id)).open_turn_id is None:
            tail, split = self.rng.choice(cuts)
            more = {"split": {"message_id": tail, "from_part": split}} if split else {}
            await summarise(scenario, tail, self.words(10), strategy="summary", **more)
            self.happened["condensed"] += 1

    async def do_prune(self, session_id: str) -> None:
        self.happened["pruned"] += (await self.engine.prune(session_id)).compacted

    async def do_settings(self, session_id: str) -> None:
        await self.engine.patch_session(session_id, metadata={"compaction": self.rng.choice(SETTINGS)})

    async def do_restart(self, session_id: str) -> None:
        if self.kind != "memory":
            await self.close()
            await self.open()

    async def _user_message(self, session_id: str) -> str:
        line = (await self.engine.store.load_line(session_id)).turns
        users = [row.id for entry in line for row in entry.messages if row.role == "user"]
        if not users:
            raise InvalidInput("nothing was said yet")
        return self.rng.choice(users[-3:] if self.rng.random() < 0.5 else users)

    async def _moves(self, session_id: str) -> int:
        return len((await self.engine.store.load_tree(session_id)).moves)

    async def rows(self, session_id: str) -> tuple[MessageRow, ...]:
        return tuple(await self.engine.store.load_messages(session_id))

    # Branches

    async def do_branch(self, session_id: str) -> None:
        every = await self.engine.messages(session_id, view="all")
        line = (await self.engine.store.load_line(session_id)).turns
        ends = [row.id for entry in line for row in entry.messages][self.rng.choice((-1, -6)) :]
        if every:
            point = self.rng.choice(ends if ends and self.rng.random() < 0.7 else [message.id for message in every])
            await self._branch(session_id, point, None)

    async def do_slice(self, session_id: str) -> None:
        rows = [row for entry in (await self.engine.store.load_line(session_id)).turns for row in entry.messages]
        starts = [row for row in rows if row.role == "user" or row.metadata.get("summary")]
        if starts:
            start = self.rng.choice(starts)
            point = self.rng.choice(rows[rows.index(start) :])
            await self._branch(session_id, point.id, start.id)

    async def do_fork(self, session_id: str) -> None:
        tree = await self.engine.store.load_tree(session_id)
        if tree.turns:
            turn_id = self.rng.choice(list(tree.turns))
            held = tree.links.get(turn_id, ("",))
            await self._branch(session_id, held[-1], None, fork=turn_id)

    async def _branch(self, session_id: str, point: str, start: str | None, fork: str | None = None) -> None:
        store = self.engine.store
        before = await self.everything(session_id)
        if fork is None:
            child = (await self.engine.branch(session_id, point, start_message_id=start)).id
        else:
            child = (await self.engine.fork(fork)).id
        self.happened["branched" if start is None else "sliced"] += 1
        assert await self.everything(session_id) == before, "a branch changed its parent"
        assert await self._ids(child) & await self._ids(session_id) == set()
        tree = await store.load_tree(session_id)
        turn_id, on_line = fork, False
        if turn_id is None:
            pointed = await locate_message(store, session_id, point)
            assert pointed.turn is not None
            turn_id, on_line = pointed.turn.id, pointed.on_line
        path = (await store.load_line(session_id, through=turn_id)).turns
        line = (await store.load_line(child)).turns
        expected, copied = said_on_line(path, point), said_on_line(line)
        if start is None:
            assert copied == expected
            summaries = await self._summaries_then(session_id, path, point)
            if on_line and path[-1].turn.kind == "normal":
                then = in_force_then((await store.load_line(session_id)).turns, turn_id, point)
                if then is not None and then.turn_id not in {entry.turn.id for entry in path}:
                    summaries.append(then.summary)
                    self.happened["carried into a branch"] += 1
                assert summaries[-1:] == ([then.summary] if then is not None else [])
            assert [one.summary for one in compactions_of(line)] == summaries
        else:
            assert copied == expected[len(expected) - len(copied) :]
            self.partial.add(child)
        if start is None and [(turn.id, held) for turn, held in line_messages(tree)][-1:] == [(turn_id, point)]:
            self.happened["branched at the end"] += 1
            assert sent_messages(await self.engine.messages(child, view="model")) == sent_messages(
                await self.engine.messages(session_id, view="model")
            )
        if session_id in self.partial:
            self.partial.add(child)
        if len(self.sessions) < MAX_SESSIONS:
            self.sessions.append(child)
        else:
            await self.judge_session(child)
            await self.engine.delete_session(child)

    async def _summaries_then(self, session_id: str, path: Sequence[LineTurn], point: str) -> list[str]:
        """The summaries there were when a message of the last turn was the newest."""
        held = [row.id for row in path[-1].messages]
        later = set(held[held.index(point) + 1 :])
        found: list[str] = []
        for compaction in compactions_of(path):
            report = await self.engine.compaction(session_id, compaction.marker.id)
            if not later & {compaction.tail_start_id, *(message.id for message in report.messages)}:
                found.append(compaction.summary)
        return found

    async def _ids(self, session_id: str) -> set[bytes]:
        """Every message and turn that anything stored for a session names, but for where it came from."""
        whole, steps = await self.everything(session_id)
        session = msgspec.structs.replace(whole.session, parent_id=None, parent_message_id=None)
        turns = [
            msgspec.structs.replace(turn, origin_turn_id=None, data=merge(turn.data, {}, ("carried_from",)))
            for turn in whole.tree.turns.values()
        ]
        tree = (turns, dict(whole.tree.links), whole.tree.moves, whole.tree.head_turn_id, whole.tree.open_turn_id)
        stored = (session, whole.messages, tree, whole.seals, whole.pruned, steps)
        return set(_IDS.findall(orjson.dumps(msgspec.to_builtins(stored))))

    async def summaries(self) -> Counter[str]:
        """What kinds of summaries came about, and how many outputs were pruned."""
        found: Counter[str] = Counter()
        for session_id in self.sessions:
            found["pruned outputs"] += len(await self.engine.store.load_pruned(session_id))
            for row in await self.rows(session_id):
                data = compaction_data(row)
                if data is not None:
                    found["summary by itself" if data["auto"] else "summary by hand"] += 1
                    found[f"strategy {data['strategy']}"] += 1
                    found["split"] += "split" in data
                    found["pair"] += data.get("frame") == "pair"
                    found["nothing kept"] += data["tail_start_id"] == row.id
        return found

    # What must hold

    async def everything(self, session_id: str) -> tuple[Any, Any]:
        whole = await self.engine.store.find_full_session(session_id)
        assert whole is not None
        return whole, {turn_id: await self.engine.store.load_steps(turn_id) for turn_id in whole.tree.turns}

    async def dump(self) -> Any:
        if self.kind in ("jsonl", "json"):
            files = [path for path in sorted(self.path.rglob("*")) if path.is_file() and path.parent.name != "notes"]
            return [(path, path.read_bytes()) for path in files]
        if self.kind in ("memory", "postgresql"):
            return [await self.everything(session_id) for session_id in await self.engine.store.session_ids()]
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as connection:
            return list(connection.iterdump())

    async def judge(self) -> None:
        assert await check(self.engine.store) == []
        before = await self.dump()
        for session_id in self.sessions:
            await self.judge_session(session_id)
            self.read_as_others_do(session_id)
        await self._prove(self.rng.choice(self.sessions))
        assert await self.dump() == before, "reading changed something"

    def read_as_others_do(self, session_id: str) -> None:
        """A reader that knows the format alone finds nothing in a file that the format does not allow."""
        if self.kind == "jsonl":
            at = self.path / "sessions" / session_id
            assert reader_003.read_metadata(at)["messageCount"] == sum(
                record["recordType"] == "message" for record in reader_003.read_records(at)
            )
        elif self.kind == "json":
            reader_001.read_session(self.path, session_id)

    async def judge_session(self, session_id: str) -> None:
        """Every part of the line is told by a summary or sent; every call has one result."""
        engine = self.engine
        await engine.tree(session_id)
        await engine.reflog(session_id)
        await judge_kept(engine, session_id)
        await engine.messages(session_id)
        await engine.messages(session_id, view="all")
        self.happened += await judge_told(engine, session_id)

    async def _prove(self, session_id: str) -> None:
        """What one of the steps was sent can be put together again."""
        tree = await self.engine.store.load_tree(session_id)
        for turn_id in self.rng.sample(sorted(tree.turns), len(tree.turns)):
            report = await self.engine.turn(turn_id)
            steps = [step.index for step in report.steps if step.request_digest is not None]
            # What a slice has left out was in the requests all the same.
            cut = session_id in self.partial and report.origin_turn_id is not None
            if steps and not cut:
                self.happened["proven"] += 1
                request = await self.engine.request(turn_id, self.rng.choice(steps))
                assert (request.proven, request.digest) == (True, request.recorded)
                return
