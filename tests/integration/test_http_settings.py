"""Settings that a person changes, prompts they keep, and files they name: over HTTP, as the page asks."""

from __future__ import annotations

import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import clew
from clew.config import config_folder, load_config, save_settings
from clew.errors import InvalidInput
from clew.providers.registry import ProviderRegistry
from clew.testing.scripted import call, say
from tests.integration.http_client import served


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else reads what is kept here."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


async def test_a_changed_setting_holds_at_once_and_after_a_restart() -> None:
    """In the user's own file, whose other lines stay; what is no model or no agent changes nothing."""
    file = config_folder() / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('# mine\ndefault_agent = "assistant"  # as ever\n[compaction]\nenabled = true\n')
    async with served(providers=ProviderRegistry(environ={}), config_dir=config_folder()) as client:
        given = {"default_model": "demo/echo", "default_agent": "explore", "max_steps": 3}
        changed = (await client.request("PATCH", "/api/settings", given)).json()
        assert changed == {**given, "file": str(file)} == (await client.get("/api/settings")).json()
        made = (await client.post("/api/sessions", {})).json()
        assert (made["agent"], made["model"]["model_id"]) == ("explore", "echo")
        listed = (await client.get("/api/models")).json()["models"]
        assert [model["id"] for model in listed if model["default"]] == ["demo/echo"]
        [limit] = [
            one["max_steps"] for one in (await client.get("/api/agents")).json()["agents"] if one["name"] == "assistant"
        ]
        assert limit == 3
        for wrong in (
            {"default_model": "nobody/none"},
            {"default_agent": "nobody"},
            {"default_agent": ""},
            {"max_steps": 0},
        ):
            assert (
                await client.request("PATCH", "/api/settings", {"default_model": "demo/long", **wrong})
            ).status == 422
        assert (await client.get("/api/settings")).json() == changed
    text = file.read_text()
    assert text == (
        'max_steps = 3\ndefault_model = "demo/echo"\n'
        '# mine\ndefault_agent = "explore"  # as ever\n[compaction]\nenabled = true\n'
    )
    async with clew.open("memory:", config="user") as engine:
        assert (await engine.settings()).default_model == "demo/echo"
        await engine.change_settings(default_model=None, default_agent=None, max_steps=None)
    assert file.read_text() == "# mine\n[compaction]\nenabled = true\n"
    assert load_config() == clew.Config()


def test_a_file_that_cannot_be_changed_line_by_line_is_left_alone(tmp_path: Path) -> None:
    """A value over several lines would be cut in two."""
    file = tmp_path / "config.toml"
    written = 'default_model = """demo/\\\n  echo"""\n'
    file.write_text(written)
    with pytest.raises(InvalidInput, match=r"by hand|could not be changed"):
        save_settings(file, {"default_model": "demo/long"})
    assert (file.read_text(), [one.name for one in tmp_path.iterdir()]) == (written, ["config.toml"])


def test_the_file_stays_what_and_where_it_is_when_a_setting_is_written(tmp_path: Path) -> None:
    """A link leads to it as before, nobody else may read it, its lines end as they did; read-only, it is left alone."""
    real, file = tmp_path / "dotfiles.toml", tmp_path / "config.toml"
    real.write_bytes(b"# a\xe2\x80\xa8b\r\nmax_steps = 2 # few\r\n")
    real.chmod(0o640)
    file.symlink_to(real)
    save_settings(file, {"max_steps": 3, "default_agent": "plan"})
    written = b'default_agent = "plan"\r\n# a\xe2\x80\xa8b\r\nmax_steps = 3 # few\r\n'
    assert (file.is_symlink(), real.read_bytes(), real.stat().st_mode & 0o777) == (True, written, 0o640)
    real.chmod(0o440)
    with pytest.raises(InvalidInput, match="is read-only"):
        save_settings(file, {"max_steps": 4})
    assert (real.read_bytes(), len(list(tmp_path.iterdir()))) == (written, 2)


def test_settings_that_are_changed_at_once_are_all_kept(tmp_path: Path) -> None:
    """Whoever comes first: what one has read is not put over what another has written."""
    file = tmp_path / "config.toml"
    given = {f"setting_{n}": n for n in range(24)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: save_settings(file, {name: given[name]}), given))
    assert tomllib.loads(file.read_text()) == given
    assert [one.name for one in tmp_path.iterdir()] == ["config.toml"]


async def test_a_turn_ends_at_the_step_limit_that_was_set() -> None:
    """Where the agent has none of its own."""
    async with served(call("read", {"path": "x"}), say("done")) as client:
        assert (await client.request("PATCH", "/api/settings", {"max_steps": 1})).status == 200
        session = await client.session()
        await client.prompt(session, "look")
        await client.idle(session)
        [_, told] = await client.messages(session)
        report = (await client.get(f"/api/turns/{told['metadata']['turn_id']}")).json()
        assert (len(report["steps"]), report["data"]) == (1, {"stopped": "step_limit", "max_steps": 1})


async def test_prompts_are_kept_under_their_names() -> None:
    """As files beside the settings; a name or a text that is none is refused, and a stranger's file is no way out."""
    async with served(config_dir=config_folder()) as client:
        assert (await client.get("/api/prompts")).json() == {"prompts": []}
        for name, text in (("tidy", "Tidy up.\n"), ("a-test", "Write a test."), ("tidy", "Tidy up well.")):
            assert (await client.post("/api/prompts", {"name": name, "text": text})).json() == {
                "name": name,
                "text": text,
            }
        kept = [{"name": "a-test", "text": "Write a test."}, {"name": "tidy", "text": "Tidy up well."}]
        assert (await client.get("/api/prompts")).json() == {"prompts": kept}
        assert (config_folder() / "prompts" / "tidy.md").read_text() == "Tidy up well."
        for wrong in ({"name": "../x", "text": "y"}, {"name": "x", "text": " "}, {"name": "x", "text": "y" * 20_001}):
            assert (await client.post("/api/prompts", wrong)).status == 422
        assert [
            (await client.request("DELETE", f"/api/prompts/{name}")).status for name in ("tidy", "tidy", "..%2fconfig")
        ] == [
            204,
            404,
            404,
        ]
        # What the system refuses is said.
        (config_folder() / "prompts" / "taken.md").mkdir()
        refused = await client.post("/api/prompts", {"name": "taken", "text": "x"})
        assert (refused.status, (await client.request("DELETE", "/api/prompts/taken")).status) == (422, 422)


async def test_files_are_found_as_they_are_typed_and_never_outside_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ignore files count as git has them; a link is not followed."""
    work = tmp_path / "work"
    for name in ("src/app.py", "src/gen/app.js", "src/gen/keep.js", "app.md", "build/app.o", ".env", "logs/app.log"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(name)
    (work / ".gitignore").write_text("# ours\n*.log\n/build/\ngen/*\n!gen/keep.js\n")
    (work / "src" / ".gitignore").write_text("gen/*\n!keep.js\n{app,b}.py\n")
    (tmp_path / "secret.txt").write_text("no")
    (work / "out.txt").symlink_to(tmp_path / "secret.txt")
    async with served(say("seen")) as client:
        made = (await client.post("/api/sessions", {"workspace_root": str(work)})).json()["id"]

        async def found(query: str) -> list[str]:
            files: list[str] = (await client.get(f"/api/files?{query}")).json()["files"]
            return files

        assert await found(f"session={made}&q=app") == ["app.md", "src/app.py"]
        assert await found(f"workspace={work}&q=") == ["app.md", "src/app.py", "src/gen/keep.js"]
        assert await found("q=app") == []
        # In the folder that is written out everything is found, whatever is before it; but nothing behind a link.
        monkeypatch.setattr("clew.tools.files.walk.MAX_ENTRIES", 3)
        (work / "a" / "b").mkdir(parents=True)
        (work / "z y").mkdir()
        for name in ("a/b/1", "a/b/2", "a/b/3", "a/b/4", "last.txt", "z y/my notes.txt"):
            (work / name).touch()
        (work / "away").symlink_to(tmp_path)
        assert await found(f"workspace={work}&q=last.txt") == ["last.txt"]
        assert await found(f"workspace={work}&q=z%20y/my") == ["z y/my notes.txt"]
        for gone in ("notes", "away/sec", "../sec", f"{tmp_path}/sec", "build/ap", "src/gen/app", "./last"):
            assert await found(f"workspace={work}&q={gone}") == []
        # Where to work is chosen among folders, one level at a time.
        assert await found(f"workspace={work}&folders=true") == ["a", "build", "logs", "src", "z y"]
        assert await found(f"workspace={work}&q=S&folders=true") == ["src"]
        # What is picked goes along as it does in a terminal.
        parts = [
            {"type": "text", "text": "see @src/app.py"},
            {"type": "file", "url": "workspace:src/app.py", "mediaType": ""},
        ]
        assert (await client.post(f"/api/sessions/{made}/prompt", {"parts": parts})).status == 202
        await client.idle(made)
        [said, *_] = await client.messages(made)
        assert [(part["filename"], part["mediaType"]) for part in said["parts"] if part["type"] == "file"] == [
            ("app.py", "text/plain")
        ]
