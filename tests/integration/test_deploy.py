"""What is in ``deploy/``, as far as it can be checked where no containers run: the files are read, not started."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.http_client import SocketClient
from tests.integration.processes import serving

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
REPLICAS = ("clew1", "clew2", "clew3")


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text()))


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the container file with its words, lines joined."""
    lines = [line for line in (DEPLOY / "Containerfile").read_text().splitlines() if not line.startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in whole.splitlines() if line)]


def test_three_replicas_are_the_same_and_may_do_little() -> None:
    """None is special, so none is needed: no sticky sessions, no volume of its own."""
    services = compose()["services"]
    one, *others = (services[name] for name in REPLICAS)
    assert others == [one, one]
    assert {name: one[name] for name in ("read_only", "cap_drop", "security_opt")} == {
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
    }
    assert set(services) == {*REPLICAS, "postgres", "valkey", "proxy"}
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]


def test_every_variable_of_the_compose_file_is_asked_for_or_has_a_default() -> None:
    """A secret has none: without it nothing starts."""
    used = dict(re.findall(r"\$\{(\w+):([-?])", (DEPLOY / "compose.yaml").read_text()))
    assert used == {
        "POSTGRES_PASSWORD": "?",
        "CLEW_TOKEN": "?",
        "CLEW_HOSTS": "-",
        "ANTHROPIC_API_KEY": "-",
        "OPENAI_API_KEY": "-",
    }
    example = re.findall(r"^(\w+)=", (DEPLOY / "example.env").read_text(), re.MULTILINE)
    assert set(example) == set(used)


def test_the_image_runs_as_somebody_who_may_nothing_and_needs_no_shell() -> None:
    """Whatever starts in it is a list of words, which no shell reads; what it copies is in the repository."""
    last = max(at for at, (name, _) in enumerate(instructions()) if name == "FROM")
    final = instructions()[last:]
    assert ("USER", "10001:10001") in final
    started = [rest for name, rest in final if name in ("ENTRYPOINT", "CMD")]
    started += [rest.partition("CMD ")[2] for name, rest in final if name == "HEALTHCHECK"]
    assert [rest for rest in started if not rest.startswith("[")] == []
    assert any("/api/health" in rest for rest in started)
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            assert [word for word in shlex.split(rest)[:-1] if not (ROOT / word).exists()] == []
    extras = re.findall(r"/source\[([\w,]+)\]", (DEPLOY / "Containerfile").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras[0].split(",")) <= set(project["optional-dependencies"])


def test_the_proxy_passes_streams_on_as_they_come_and_knows_every_replica() -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    assert re.findall(r"^\s+server (\w+):7717", text, re.MULTILINE) == list(REPLICAS)
    said = dict(re.findall(r"^\s+(proxy_\w+|gzip) ([^;]+);", text, re.MULTILINE))
    assert (said["proxy_buffering"], said["gzip"]) == ("off", "off")
    # A silent stream sends a comment every 15 seconds.
    assert int(said["proxy_read_timeout"].removesuffix("s")) > 30
    assert "proxy_set_header Host $http_host;" in text
    assert "ip_hash" not in text
    assert text.count("{") == text.count("}")


@pytest.mark.slow
async def test_a_name_that_a_proxy_passes_on_is_answered_to_when_it_was_given(tmp_path: Path) -> None:
    """And no other: a page that has its own name point here gets nothing."""
    async with serving(tmp_path, CLEW_HOSTS="Clew.Example, clew.example:8443") as server:
        client: SocketClient = server.client
        answers = [
            (await client.get("/api/models", headers={"host": host, "origin": f"https://{host}"})).status
            for host in ("clew.example", "clew.example:8443", "other.example", "clew.example:1")
        ]
    assert answers == [200, 200, 403, 403]
