"""``python -m tests.services [--replicas N] [--without-valkey]``: a cluster for manual tests, for as long as it runs.

A PostgreSQL and a Valkey from their wheels, and the requested number of ``clew serve``, all on the loopback interface
and with one token. Everything is in temporary folders, which this program removes when it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shlex
import signal
import sys

from tests.services.postgres import Postgres
from tests.services.replica import Replica
from tests.services.valkey import Valkey

_SHARED = ("CLEW_STORE", "CLEW_LIVE", "CLEW_TOKEN")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make serve-cluster", description=__doc__)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--port", type=int, default=7717, help="of the first replica; the others use the next ones")
    parser.add_argument("--without-valkey", action="store_true", help="PostgreSQL carries the live layer too")
    options = parser.parse_args()
    token = os.environ.get("CLEW_TOKEN") or secrets.token_urlsafe(24)
    with contextlib.ExitStack() as running:
        postgres = Postgres()
        running.callback(postgres.close)
        store = postgres.url(postgres.create())
        env = {**os.environ, "CLEW_STORE": store, "CLEW_TOKEN": token}
        if not options.without_valkey:
            valkey = Valkey()
            running.callback(valkey.close)
            env["CLEW_LIVE"] = valkey.url()
        replicas = []
        for number in range(options.replicas):
            replica = Replica(env, options.port + number if options.port else 0)
            running.callback(replica.close)
            replicas.append(replica)
            replica.begin()
        for replica in replicas:
            replica.until_up()
        running.callback(lambda: [replica.end(10) for replica in replicas])
        print(f"PostgreSQL  {store}")
        print(f"live layer  {env.get('CLEW_LIVE', 'PostgreSQL')}")
        for replica in replicas:
            print(f"clew        {replica.url}/#token={token}")
        environment = " ".join(f"{name}={shlex.quote(env[name])}" for name in env if name in _SHARED)
        last = replicas[-1]
        print(f"Kill one    kill -9 {last.pid}")
        print(f"Restart it  {environment} clew serve --port {last.url.rpartition(':')[2]}")
        print("Ctrl-C stops all of them and deletes their data.", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
        print("stopping", flush=True)
    return 0


if __name__ == "__main__":
    # Waited for, not handled: no cleanup may be interrupted.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.exit(main())
