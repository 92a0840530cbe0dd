"""Settings: where they are read from, what may stand in them, and what happens when something else does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.config import Config, SavePolicy, default_store_url, load_config, unknown_settings
from clew.errors import InvalidInput


def a_file(folder: Path, text: str | bytes) -> Path:
    path = folder / "config.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    """A chunk is stored at once, a commit survives the process."""
    assert load_config(tmp_path / "missing.toml") == Config()
    assert Config() == Config(
        default_model=None,
        default_agent="assistant",
        save=SavePolicy(save_on=None, save_buffer_size=65536, save_buffer_ms=50, parts_lag_ms=250),
        durability="process",
        group_window_ms=0.0,
        group_gap_ms=1.0,
        lock_wait_ms=60_000.0,
    )


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    """Nothing has to be said."""
    assert load_config(a_file(tmp_path, "# nothing yet\n")) == Config()


def test_every_setting_can_be_written_in_toml(tmp_path: Path) -> None:
    """A whole number is good where a fraction is expected."""
    text = """
        default_model = "openai/gpt"
        default_agent = "coder"
        durability = "power"
        group_window_ms = 2
        group_gap_ms = 0.5
        lock_wait_ms = 1500.5

        [save]
        save_on = "step"
        save_buffer_size = 0
        save_buffer_ms = 200
        parts_lag_ms = 50
    """
    assert load_config(a_file(tmp_path, text)) == Config(
        default_model="openai/gpt",
        default_agent="coder",
        save=SavePolicy(save_on="step", save_buffer_size=0, save_buffer_ms=200, parts_lag_ms=50),
        durability="power",
        group_window_ms=2.0,
        group_gap_ms=0.5,
        lock_wait_ms=1500.5,
    )


def test_keys_that_clew_does_not_know_are_left_to_later_versions(tmp_path: Path) -> None:
    """At the top, inside a known table, and as a table of their own."""
    text = 'new = 1\ndefault_agent = "coder"\n[save]\nsave_on = "turn"\nnewer = true\n[tables.of.tomorrow]\nx = 1\n'
    assert load_config(a_file(tmp_path, text)) == Config(default_agent="coder", save=SavePolicy(save_on="turn"))


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        "default_model = ",
        "a = 1\na = 2\n",
        "default_model = 5",
        'durability = "perhaps"',
        '[save]\nsave_on = "never"',
        '[save]\nsave_buffer_ms = "50"',
        'save = "chunk"',
        "group_window_ms = true",
        "\x00",
        "{" * 50,
    ],
)
def test_what_is_no_configuration_is_refused_with_the_path(tmp_path: Path, text: str) -> None:
    """Not TOML, or a value of the wrong kind; the sentence says which file and what is wrong with it."""
    path = a_file(tmp_path, text)
    with pytest.raises(InvalidInput) as refusal:
        load_config(path)
    assert str(refusal.value).startswith(f"{path} is not a valid configuration: ")
    assert refusal.value.__cause__ is not None


@pytest.mark.parametrize("how", ["not utf-8", "a folder", "below a file"])
def test_a_file_that_cannot_be_read_is_refused_with_the_path(tmp_path: Path, how: str) -> None:
    """Silently taking the defaults instead would put transcripts where nobody wanted them."""
    path = a_file(tmp_path, b"default_agent = '\xff'")
    if how == "a folder":
        path = tmp_path
    elif how == "below a file":
        path = path / "config.toml"
    with pytest.raises(InvalidInput) as refusal:
        load_config(path)
    assert str(refusal.value).startswith(f"{path} cannot be read: ")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary() | st.text(alphabet="abc=[]{}\"'\n.,#0\\ ").map(str.encode))
def test_any_file_is_a_configuration_or_refused_with_the_path(tmp_path: Path, content: bytes) -> None:
    """Nothing else ever comes out."""
    path = a_file(tmp_path, content)
    try:
        outcome = str(type(load_config(path)))
    except InvalidInput as refusal:
        outcome = str(refusal)
    assert outcome == str(Config) or outcome.startswith(f"{path} ")


def test_the_file_lies_in_the_users_configuration_folder(tmp_path: Path) -> None:
    """`XDG_CONFIG_HOME`, else `.config` at home."""
    for folder, environ in (
        (tmp_path / "xdg" / "clew", {"XDG_CONFIG_HOME": str(tmp_path / "xdg"), "HOME": str(tmp_path / "home")}),
        (tmp_path / "home" / ".config" / "clew", {"HOME": str(tmp_path / "home")}),
    ):
        folder.mkdir(parents=True)
        a_file(folder, f'default_agent = "{folder.parent.name}"')
        assert load_config(environ=environ) == Config(default_agent=folder.parent.name)


@pytest.mark.parametrize(
    "environ",
    [{"XDG_CONFIG_HOME": ".config"}, {"XDG_CONFIG_HOME": ""}, {"XDG_CONFIG_HOME": ".", "HOME": "/nonexistent"}],
    ids=["relative", "empty", "here"],
)
def test_a_project_folder_is_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    """A relative folder would be the project's: a cloned repository must not choose anything."""
    for folder in (tmp_path / "clew", tmp_path / ".config" / "clew"):
        folder.mkdir(parents=True)
        a_file(folder, 'default_agent = "evil"')
    monkeypatch.chdir(tmp_path)
    assert load_config(environ={"HOME": "/nonexistent", **environ}) == Config()
    assert load_config(environ={"HOME": "", **environ}).default_agent != "evil"


def test_the_store_is_the_one_that_is_named() -> None:
    """`CLEW_STORE` before everything else, as it stands."""
    assert default_store_url({"CLEW_STORE": "memory:", "XDG_DATA_HOME": "/x", "HOME": "/h"}) == "memory:"


def test_the_store_lies_in_the_users_data_folder() -> None:
    """`XDG_DATA_HOME`, else `.local/share` at home; an empty or relative variable does not count."""
    at_home = "sqlite:////h/.local/share/clew/clew.db"
    assert default_store_url({"XDG_DATA_HOME": "/x", "HOME": "/h"}) == "sqlite:////x/clew/clew.db"
    assert default_store_url({"HOME": "/h"}) == at_home
    assert default_store_url({"CLEW_STORE": "", "XDG_DATA_HOME": "", "HOME": "/h"}) == at_home
    assert default_store_url({"XDG_DATA_HOME": "data", "HOME": "/h"}) == at_home


def test_without_a_home_the_system_is_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the folder clew happens to run in."""
    monkeypatch.setenv("HOME", "/from/the/system")
    assert default_store_url({}) == "sqlite:////from/the/system/.local/share/clew/clew.db"
    assert default_store_url({"HOME": ""}) == "sqlite:////from/the/system/.local/share/clew/clew.db"


def test_keys_that_are_ignored_can_be_named(tmp_path: Path) -> None:
    """A misspelt sandbox is none, so somebody has to say so; what providers are told is their own."""
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert unknown_settings(environ) == ()
    (tmp_path / "clew").mkdir()
    (tmp_path / "clew" / "config.toml").write_text(
        'sandbox = "workspace"\n[tools]\nsandbx = "files"\nsandbox = "files"\n[tool]\nx = 1\n'
        "[providers.local]\nown = 1\n[compaction.smart_recovery]\ndrop = true\n"
    )
    assert unknown_settings(environ) == ("sandbox", "tools.sandbx", "tool", "compaction.smart_recovery.drop")
