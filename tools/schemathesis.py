"""Runs schemathesis, from its own environment, on the whole API of a new server."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Streams without an end cannot be tested.
ENDLESS = ("/api/events",)


def main() -> int:
    """Run the server and schemathesis, and return its exit code."""
    with tempfile.TemporaryDirectory(prefix="clew-schemathesis-") as folder:
        home = dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), folder)
        environ = {**os.environ, **home, "CLEW_STORE": f"sqlite:///{folder}/store.db"}
        command = [str(ROOT / ".venv/bin/clew"), "serve", "--port", "0"]
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
            try:
                assert server.stdout is not None
                address, _, token = server.stdout.readline().decode().split()[1].partition("/#token=")
                return _run(address, token)
            finally:
                server.terminate()


def _run(address: str, token: str) -> int:
    arguments = [str(ROOT / ".venv-schemathesis/bin/schemathesis"), "run", f"{address}/openapi.json"]
    arguments += ["--header", f"Authorization: Bearer {token}", "--max-examples", os.environ.get("CLEW_EXAMPLES", "20")]
    arguments += ["--request-timeout", "10", "--phases", "examples,coverage,fuzzing", "--checks", "not_a_server_error"]
    arguments += ["--checks", "status_code_conformance,content_type_conformance,response_schema_conformance"]
    for path in ENDLESS:
        arguments += ["--exclude-path", path]
    return subprocess.run(arguments, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
