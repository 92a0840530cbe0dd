"""Agents, skills, instructions and a workspace's model are read again when they have changed, and only then."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clew import safe_read
from clew.agents.catalog import AgentCatalog
from clew.errors import InvalidInput
from clew.safe_read import FileCache, Unreadable, confined, read_contained
from clew.system_prompt.inputs import Environment, PromptInputs
from clew.system_prompt.instructions import _load, load_instructions
from clew.system_prompt.sections import _assemble, assemble
from clew.system_prompt.skills import SkillCatalog
from clew.workspace_config import _read, find_workspace_model
from tests.rounds import rounds

AGENT = "---\ndescription: {}\n---\nbody\n"
HOUR_NS = 3_600_000_000_000


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour has gone by since anything on disk was changed."""
    monkeypatch.setattr(safe_read, "_SETTLED_NS", -HOUR_NS)


def tick(folder: Path) -> None:
    """Until the file system's clock has gone on: what is written from here on has another time."""
    scratch = folder / "tick"
    scratch.touch()
    first = scratch.stat().st_ctime_ns
    while scratch.stat().st_ctime_ns == first:
        scratch.chmod(0o600)


def looks(workspace: Path, home: Path) -> list[tuple[Any, Any]]:
    """Everything that is kept of a workspace, beside the same read anew."""
    agents, fresh = AgentCatalog.load(None, workspace), AgentCatalog._read(None, workspace)
    skills, index = SkillCatalog.load(None, workspace), SkillCatalog._read(None, workspace)
    return [
        ((agents.list(), agents.notices), (fresh.list(), fresh.notices)),
        ((skills.index, skills.notices), (index.index, index.notices)),
        (load_instructions(workspace, home=home), _load(workspace, home)),
        (told(find_workspace_model, workspace), told(_read, workspace)),
    ]


def told(read: Callable[[Path], str | None], workspace: Path) -> str | None:
    try:
        return read(workspace)
    except InvalidInput as error:
        return str(error)


def test_a_file_that_changed_just_now_is_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same length, in place, and in the same two seconds of a coarse clock: nothing but the content tells."""
    exact = safe_read._identify

    def coarse(path: Path) -> safe_read.FileIdentity | None:
        trace = exact(path)
        return None if trace is None else (*trace[:4], *(at - at % 2_000_000_000 for at in trace[4:]))

    monkeypatch.setattr(safe_read, "_identify", coarse)
    file = tmp_path / ".clew" / "agents" / "one.md"
    file.parent.mkdir(parents=True)
    for n in range(20):
        with file.open("r+" if n else "w") as open_file:
            open_file.write(AGENT.format(f"{n:03}"))
        assert AgentCatalog.load(None, tmp_path).get("one").description == f"{n:03}"


@pytest.mark.usefixtures("later")
def test_what_has_not_changed_is_not_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same values come back, and no file is touched for them but by its name."""
    write(tmp_path, ".clew/agents/one.md", AGENT.format("one"))
    write(tmp_path, ".clew/skills/how/SKILL.md", AGENT.format("how"))
    write(tmp_path, ".clew/config.toml", 'default_model = "demo/echo"\n')
    write(tmp_path, "AGENTS.md", "be kind")
    first = [one for one, _ in looks(tmp_path, tmp_path)]
    agents, skills = AgentCatalog.load(None, tmp_path), SkillCatalog.load(None, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(safe_read, "_open", lambda *_: pytest.fail("a file was opened"))
        patched.setattr(os, "scandir", lambda *_: pytest.fail("a folder was listed"))
        assert AgentCatalog.load(None, tmp_path) is agents
        assert SkillCatalog.load(None, tmp_path) is skills
        assert load_instructions(tmp_path, home=tmp_path) == first[2]
        assert find_workspace_model(tmp_path) == first[3] == "demo/echo"


@pytest.mark.slow
@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("seed", range(4))
def test_what_is_kept_is_what_is_there_whatever_is_done_to_the_files(tmp_path: Path, seed: int) -> None:
    """Written in place with the old times, replaced, removed, linked elsewhere, closed, moved with all around it."""
    chance = random.Random(seed)
    workspace, other = tmp_path / "here", tmp_path / "there"
    for folder in (workspace, other):
        write(folder, ".clew/agents/one.md", AGENT.format("aaa"))
        write(folder, ".clew/skills/how/SKILL.md", AGENT.format("aaa"))
        write(folder, "AGENTS.md", "aaa")
    names = [
        ".clew/agents/one.md",
        ".clew/agents/two.md",
        ".clew/skills/how/SKILL.md",
        ".clew/config.toml",
        "AGENTS.md",
        "CLAUDE.md",
    ]
    doings: list[Callable[[Path, str], None]] = [in_place, replaced, removed, linked, closed, moved]
    for _ in range(rounds(60)):
        tick(tmp_path)
        doing, name = chance.choice(doings), chance.choice(names)
        doing(workspace / name, chance.choice("abc") * 3)
        for kept, anew in looks(workspace, tmp_path):
            assert kept == anew, (doing.__name__, name)


def test_what_is_kept_has_a_bound_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not asked for longest goes; a file larger than all that may be kept is not kept."""
    monkeypatch.setattr(safe_read, "_SETTLED_NS", -HOUR_NS)
    kept: FileCache[str] = FileCache(max_bytes=100)
    made: list[str] = []

    def get(name: str) -> str:
        def make() -> str:
            made.append(name)
            found = read_contained(tmp_path / name, tmp_path, 1_000)
            return found.text if found is not None else ""

        return kept.get(name, make)

    for name, size in (("a", 40), ("b", 40), ("c", 40), ("d", 101)):
        write(tmp_path, name, name * size)
    asked = ["a", "b", "a", "c", "a", "b", "d", "d", "none", "none"]
    assert [get(name)[:1] for name in asked] == ["a", "b", "a", "c", "a", "b", "d", "d", "", ""]
    assert made == ["a", "b", "c", "b", "d", "d", "none"]


def test_what_is_kept_is_not_for_a_reader_who_may_read_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with a second name is read for everybody but an owner who is confined to its folder."""
    monkeypatch.setattr(safe_read, "_SETTLED_NS", -HOUR_NS)
    work = tmp_path / "work"
    work.mkdir()
    write(tmp_path, "secret", "secret")
    (work / "note").hardlink_to(tmp_path / "secret")
    kept: FileCache[str] = FileCache()

    def get() -> str:
        def make() -> str:
            try:
                found = read_contained(work / "note", work, 100)
            except Unreadable as error:
                return str(error)
            return found.text if found is not None else ""

        return kept.get("note", make)

    refused = "has a second name (a hard link), which may be outside the workspace"
    for _ in range(2):
        assert get() == "secret"
        with confined(work):
            assert get() == refused
        with confined(tmp_path / "elsewhere"), confined(None):
            assert get() == "secret"
    write(work, "own", "own")
    with confined(work):
        found = read_contained(work / "own", work, 100)
    assert found is not None
    assert found.text == "own"


def test_what_is_kept_of_folders_without_files_has_a_bound_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of them has any bytes, and a server may be given any number of them."""
    monkeypatch.setattr(safe_read, "_MAX_KEYS", 10)
    kept: FileCache[object] = FileCache()
    for n in range(100):
        kept.get(n, lambda: read_contained(tmp_path / "none", tmp_path, 1_000))
    assert list(kept._entries) == list(range(90, 100))


def test_a_prompt_that_was_made_before_is_the_one_that_would_be_made() -> None:
    """By all it was made of: a schema changed in place is another one."""
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}

    class OneTool:
        name, description, input_schema = "one", "does one thing", schema

    here = Environment(platform="Linux", date="2026-10-03", zone="UTC", model="demo/echo")
    seen = []
    for n in range(3):
        for prompt in ("be kind", "be brief"):
            inputs = PromptInputs(agent_prompt=prompt, environment=here, tools=(as_tool(OneTool),))
            assert assemble(inputs) == _assemble(inputs)
            assert assemble(inputs) is assemble(inputs)
            seen.append(assemble(inputs).digest)
        schema["properties"]["a"]["maxLength"] = n
    assert len(set(seen)) == len(seen)
    odd = PromptInputs(agent_prompt="x", tools=(as_tool(OneTool, {"type": {1, object()}}),))
    assert assemble(odd) == _assemble(odd)


def as_tool(kind: Any, schema: Any = None) -> Any:
    from clew.providers.base import ToolSchema

    return ToolSchema(kind.name, kind.description, dict(schema or kind.input_schema))


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def in_place(path: Path, word: str) -> None:
    """Of the same length, and as old as before."""
    if path.is_file() and os.access(path, os.R_OK):
        before, text = path.stat(), path.read_text()
        with path.open("r+") as file:
            file.write(text.replace("aaa", word).replace("bbb", word).replace("ccc", word))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(path: Path, word: str) -> None:
    text = f'default_model = "demo/{word}"\n' if path.suffix == ".toml" else AGENT.format(word)
    new = path.with_name("new.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    new.write_text(text)
    new.replace(path)


def removed(path: Path, word: str) -> None:
    path.unlink(missing_ok=True)


def linked(path: Path, word: str) -> None:
    """To a file of that content beside it, out of the workspace, or to nothing."""
    # Other steps write and close what is linked to: it is a file of the test's own.
    outside = next(folder for folder in path.parents if folder.name == "here").with_name("outside.txt")
    outside.unlink(missing_ok=True)
    outside.write_text("root:x:0:0\n")
    target = {"aaa": path.with_name(f"{word}.txt"), "bbb": outside, "ccc": path.with_name("nothing")}[word]
    path.parent.mkdir(parents=True, exist_ok=True)
    if word == "aaa":
        target.write_text(AGENT.format(word))
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def closed(path: Path, word: str) -> None:
    """Nobody may read it, or everybody may write to the folder it is in."""
    if path.is_file():
        path.chmod(0o000 if word == "aaa" else 0o600)


def moved(path: Path, word: str) -> None:
    """The whole workspace changes places with another of the same names."""
    workspace = next(folder for folder in path.parents if folder.name == "here")
    there, aside = workspace.with_name("there"), workspace.with_name("aside")
    workspace.rename(aside)
    there.rename(workspace)
    aside.rename(there)
