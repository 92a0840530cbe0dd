"""The guide: what ``demo/tour`` knows about clew, and which tools it uses when asked to.

Topics are found by words in the question. A request for a file, a folder or a command becomes a call of a tool that
is offered; what comes back is shown. Nothing here is clever, and it says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from clew.providers.base import ToolSchema
from clew.providers.demo.calls import Asked, arguments
from clew.providers.demo.reading import Result, compact

__all__ = ["answer", "show_results", "wanted_call"]

_LONGEST_SHOWN: Final = 1_200

_TRY: Final = """\
Things to try:

- ask *what is clew?*, *what happens in a crash?*, *how do I go back?*, *what when the context is full?*, \
*how do permissions work?*, *which models are there?*
- say *list the files*, *read README.md* or *run ls -la*, and see how permission is asked for
- leave the stream, or kill the server, while an answer is being written, and come back
- `demo/long` writes as many words as you name, `demo/tools` runs each line that starts with `!`, `demo/fail` fails \
as you tell it (`503 2`), `demo/small` has so small a window that it is soon full
"""

_WELCOME: Final = f"""\
Hello! I am **demo/tour**, the built-in guide to clew. I am not a language model: I match words, I need no key and no \
network, and I always answer the same way.

clew is the durable session engine for AI agents. It records every word an agent streams before anybody sees it, and \
keeps what was seen when the viewer, the process or the machine does not last.

{_TRY}
Set `ANTHROPIC_API_KEY` or `OPENAI_API_KEY` and start again to talk to a real model.
"""

_TOPICS: Final[tuple[tuple[str, str], ...]] = (
    (
        r"\b(crash|crashes|kill|killed|durable|durability|power|restart|lose|lost|safe)\b",
        """\
## What survives

A word is shown only after it is stored. A kill of the process loses nothing you saw; your own messages and finished \
steps also survive a loss of power. A tool that was running is marked *interrupted, effects unknown* and is never run \
again by itself. After a restart every session is idle and usable.

Try it: ask `demo/long` for 2000 words with the variant `slow`, and kill the server in the middle.
""",
    ),
    (
        r"\b(resume|reload|reconnect|viewer|viewers|stream|streaming|tab)\b",
        """\
## Streams

The run belongs to the server, not to who watches. Leave, come twice, lose the network: the run goes on, and every \
viewer gets the message from its first word and then the live tail, without a gap or a repetition. Only *abort* stops \
a run.
""",
    ),
    (
        r"\b(permission|permissions|approve|approval|approvals|allow|deny|denied|rule|rules)\b",
        """\
## Permissions

Reading inside the workspace is allowed, everything that changes something is asked: writing, editing, shell commands, \
fetching from the web, and anything outside the workspace. You answer *once*, *for this session*, \
*for this project* or *no*. The wait is stored: you can answer tomorrow, after a restart.
""",
    ),
    (
        r"\b(rewind|undo|go back|unrewind|reflog|branch|branches|fork|tree)\b",
        """\
## Going back

Rewind to any message of yours and send it again, or change it first. What came after leaves the conversation and is \
never deleted: *un-rewind* brings it back, and the reflog lists every place the conversation has been at. A branch is \
a new session that starts as a copy of this one up to a message you choose.

```
clew rewind SESSION MESSAGE --run
clew reflog SESSION
clew branch SESSION MESSAGE
```
""",
    ),
    (
        r"\b(compact|compaction|summary|summarise|summarize|prune|context|window|room)\b",
        """\
## Making room

Before each call the next request is measured. When it nears the model's window, old tool outputs become stubs, and \
then earlier turns become a summary: for the model only. You still have every word, and the line in the conversation \
opens to what was summarised. Your own directives are carried on word for word.

`clew context SESSION` shows how full it is. Try it with `demo/small`, whose window is full after a few long messages.
""",
    ),
    (
        r"\b(queue|queued|busy|interrupt|interrupted|abort)\b",
        """\
## Queue

A session has at most one run. What you send meanwhile is queued, in order and durably; or it interrupts, or it is \
refused, as you choose. Queued messages can be cancelled until they start.
""",
    ),
    (
        r"\b(model|models|key|keys|provider|providers|anthropic|openai|ollama|local)\b",
        """\
## Models

Any turn may use another model. `anthropic/…`, `openai/…`, `google/…`, `openrouter/…` and `ollama/…` work once their \
key is in the environment (`ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, …), and any OpenAI-compatible endpoint can be named \
in `config.toml`:

```toml
[providers.local]
kind = "openai-compatible"
base_url = "http://127.0.0.1:11434/v1"
```

`GET /api/models` lists what is usable, and what is missing for the rest. The `demo/…` models need nothing.
""",
    ),
    (
        r"\b(store|stores|sqlite|database|file format|storage|backup)\b",
        """\
## Storage

One SQLite file in your data folder, with a schema other programs can read; or memory. `clew backup FILE` copies it \
while it is in use, and `clew check` proves that it is whole.
""",
    ),
    (
        r"\b(command line|cli|terminal|commands?|api|http|python|library)\b",
        """\
## Ways in

- `clew serve` is an HTTP API on loopback; AI SDK clients talk to it as they are
- `clew chat` in the terminal, `clew run "…"` for one turn; `clew --help` lists the rest
- in Python:

```python
import clew

async with clew.open("sqlite:///clew.db") as engine:
    session = await engine.create_session(model="demo/echo")
    async for chunk in engine.run(session.id, "hello"):
        print(chunk)
```
""",
    ),
    (
        r"\b(what is clew|what's clew|about clew|who are you|what are you|clew)\b",
        """\
## clew

A clew is the ball of thread that leads back out of the labyrinth. clew is the durable session engine for AI agents: \
it records everything an agent streams before anybody sees it, and keeps what was seen when the viewer, the process or \
the machine does not last.

It is a library, a server, and a command line, all over one store.
""",
    ),
)

_PLEASE: Final = r"\A\W*(?:(?:please|now|then|ok|can you|could you|would you)\W+)*"
"""A wish begins with its verb: a question about running something is a question."""
_FILE: Final = r"[`'\"]?([\w./~-]*\w[\w.-]*\.\w+|[\w.-]+/[\w./-]*|Makefile|LICENSE)[`'\"]?"
_LIST: Final = re.compile(
    _PLEASE
    + r"(?:(?:list|show)\b[^.?!]*?\b(?:files|folder|directory)\b|what\s+files\b|what(?:'s| is)\s+in\s+th\w+\s+folder)"
    r"(?:[^.?!]*?\b(?:in|of|under)\s+[`'\"]?([\w./~-]+))?",
    re.IGNORECASE,
)
_RUN: Final = re.compile(_PLEASE + r"(?:run|execute)\s+(?:the command\s+)?(?:`([^`]+)`|(.+))", re.IGNORECASE)
_WRITE: Final = re.compile(
    rf"{_PLEASE}(?:write|create|make|save)\b(?:.*?\bfile\b)?.*?{_FILE}(?:\s+(?:with|saying|containing)\s+(.+))?",
    re.IGNORECASE | re.DOTALL,
)
_READ: Final = re.compile(rf"{_PLEASE}(?:read|open|show|print|cat)\b.*?{_FILE}", re.IGNORECASE)
_THIS_FOLDER: Final = frozenset({"this", "the", "here", "my", "current"})


def answer(question: str) -> str:
    """What the guide says to a question: about the topics it knows, at most two of them, or a welcome."""
    found = [text for pattern, text in _TOPICS[:-1] if re.search(pattern, question, re.IGNORECASE)][:2]
    if not found and re.search(_TOPICS[-1][0], question, re.IGNORECASE):
        found = [_TOPICS[-1][1]]
    if not found:
        return _WELCOME
    return "\n".join(found) + "\n" + _TRY


def wanted_call(question: str, tools: Sequence[ToolSchema]) -> Asked | str | None:
    """The call a question asks for; a sentence when no tool for it is offered; None when it asks for none."""
    offered = {tool.name: tool for tool in tools}
    for names, rest in _wishes(question):
        for name in names:
            if name in offered:
                return Asked(name, arguments(name, rest, offered[name]))
        return (
            "I would use a tool for that, but none is offered here. A session that was started in a folder "
            "(`clew run` does that, and over HTTP `workspace_root`) has tools for files and commands.\n\n" + _TRY
        )
    return None


def _wishes(question: str) -> list[tuple[tuple[str, ...], str]]:
    """Tools that could do what is asked, by preference, with what to ask them for."""
    if (match := _RUN.search(question)) is not None:
        command = (match[1] or match[2]).strip()
        return [(("bash",), command if match[1] else command.rstrip(".?!"))]
    if (match := _LIST.search(question)) is not None:
        folder = match[1] if match[1] and match[1].lower() not in _THIS_FOLDER else "."
        return [(("ls", "list", "list_directory", "glob"), folder)]
    if (match := _WRITE.search(question)) is not None:
        return [(("write", "write_file"), f"{match[1]} {(match[2] or 'Written by demo/tour.').strip()}")]
    if (match := _READ.search(question)) is not None:
        return [(("read", "read_file"), match[1].rstrip("."))]
    return []


def show_results(results: Sequence[Result]) -> str:
    """What tools gave back, in Markdown."""
    return "\n\n".join(_shown(result) for result in results) + "\n\nAnything else? " + _TRY


def _shown(result: Result) -> str:
    asked = f"`{result.tool}` {compact(result.input) if result.input is not None else ''}".strip()
    if result.outcome == "denied":
        return f"{asked} was denied{f': {result.text}' if result.text else ''}. That is fine, nothing was done."
    if result.outcome == "failed":
        return f"{asked} did not work: {result.text}"
    text = result.text if len(result.text) <= _LONGEST_SHOWN else result.text[:_LONGEST_SHOWN] + "\n…"
    fence = "`" * max(3, max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    return f"{asked} says:\n\n{fence}\n{text}\n{fence}"
