"""What is in ``deploy/``, as far as it can be checked without other programs: the files are read, not started.

``make test-deploy`` checks them with linters and schemas too, and does the container file's steps: ``tests/deploy``.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.command_line import Run, run
from tests.integration.http_client import SocketClient
from tests.integration.processes import serving

__all__ = ["run"]

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


def manifest(kind: str) -> dict[str, Any]:
    """The one object of a kind in the Kubernetes manifest."""
    text = (DEPLOY / "kubernetes.yaml").read_text()
    [found] = [one for one in yaml.safe_load_all(text) if one["kind"] == kind]
    return dict(found)


def pod() -> dict[str, Any]:
    return dict(manifest("Deployment")["spec"]["template"]["spec"])


def test_the_manifest_starts_the_server_with_options_ports_and_probes_that_are_there() -> None:
    """Options of `clew serve`, open routes of the API, the image's port and user, and folders that the image has."""
    from clew.fronts.cli.app import app
    from clew.fronts.operations.table import OPERATIONS

    [container] = pod()["containers"]
    command, *words = container["args"]
    taken = {name for argument in app[command].assemble_argument_collection() for name in argument.names}
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert set(options) <= taken
    image = dict(instructions())
    assert json.loads(image["CMD"]) == [command, "--host", options["--host"], "--port", image["EXPOSE"]]
    assert container["ports"] == [{"name": "http", "containerPort": int(options["--port"])}]
    assert options["--port"] == image["EXPOSE"]
    [port] = manifest("Service")["spec"]["ports"]
    assert (port["targetPort"], manifest("Service")["spec"]["selector"]) == ("http", labels())
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {probe["port"] for probe in probes.values()} == {"http"}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/api/health",
        "liveness": "/api/health",
        "readiness": "/api/health/ready",
    }
    open_routes = {(one.method, one.path) for one in OPERATIONS if one.open}
    assert {("GET", probe["path"]) for probe in probes.values()} <= open_routes
    user = image["USER"].split(":")
    assert [str(pod()["securityContext"][name]) for name in ("runAsUser", "runAsGroup")] == user
    volumes = {one["name"]: one for one in pod()["volumes"]}
    mounted = {one["mountPath"]: volumes[one["name"]] for one in container["volumeMounts"]}
    assert set(mounted) == {*json.loads(image["VOLUME"]), "/tmp"}
    claim = mounted["/workspace"]["persistentVolumeClaim"]["claimName"]
    assert claim == manifest("PersistentVolumeClaim")["metadata"]["name"]


def test_kubernetes_waits_longer_than_a_replica_drains_and_takes_them_one_by_one() -> None:
    """The sleep before SIGTERM, the drain and the moment in which the rest is settled fit into the grace period."""
    from clew.fronts.http.serve import _DEADLINE_S, _SHARED_DRAIN_S

    [container] = pod()["containers"]
    words = container["args"]
    drain = float(words[words.index("--drain") + 1])
    sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod()["terminationGracePeriodSeconds"] >= sleep + drain + _DEADLINE_S + 5
    readiness = container["readinessProbe"]
    assert readiness["periodSeconds"] * readiness["failureThreshold"] <= 15
    spec = manifest("Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]) == (3, {"maxSurge": 1, "maxUnavailable": 0})
    budget = manifest("PodDisruptionBudget")["spec"]
    assert budget == {"maxUnavailable": 1, "selector": {"matchLabels": labels()}}
    grace = compose()["services"]["clew1"]["stop_grace_period"]
    assert float(grace.removesuffix("s")) >= _SHARED_DRAIN_S + _DEADLINE_S + 5


def labels() -> dict[str, str]:
    spec = manifest("Deployment")["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    return dict(spec["selector"]["matchLabels"])


def test_the_manifest_grants_nothing_and_starts_with_no_secret_of_its_own() -> None:
    """Every variable is one of clew's, or a provider's key; an empty token keeps the server from starting."""
    [container] = pod()["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    # A Service called clew would add variables that begin with CLEW_.
    assert (pod()["automountServiceAccountToken"], pod()["enableServiceLinks"]) == (False, False)
    assert pod()["securityContext"]["runAsNonRoot"] is True
    secret = manifest("Secret")
    assert container["envFrom"] == [{"secretRef": {"name": secret["metadata"]["name"]}}]
    given = secret["stringData"]
    assert (given["CLEW_TOKEN"], "PASSWORD" in given["CLEW_STORE"]) == ("", True)
    reference = (ROOT / "docs" / "how-to" / "settings.md").read_text()
    assert [name for name in (*given, *(one["name"] for one in container["env"])) if f"`{name}" not in reference] == []


def test_an_empty_token_keeps_the_server_from_being_reached_from_elsewhere(run: Run) -> None:
    """As the manifest has it, until it is filled in."""
    code, out, err = run("serve", "--host", "0.0.0.0", "--port", "0", CLEW_TOKEN="")
    assert (code, out, "set CLEW_TOKEN to a secret of your own" in err) == (2, "", True)


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
