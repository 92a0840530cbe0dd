"""The product of ``examples/product`` with a model that follows a script.

``python -m tests.browser.desk_server FRONT STORE`` prints its address. The script is the one conversation of
``product.test.mjs``.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn

import clew
from clew.testing.scripted import ScriptedModel, call, say
from examples.product.app import make_app
from examples.product.desk import Order, Shop
from examples.product.people import People

SCRIPT: list[Any] = [
    call("task", {"prompt": "Which lamp did the customer buy?", "agent": "clerk"}),
    call("find_orders", {"query": {"text": "lamp"}}),
    say("Order 7, a blue lamp."),
    [say("I can pay it back."), call("pay_back", {"refund": {"order": 7, "why": "It flickers."}})],
    call("draw_label", {"number": 7}),
    say("Done. Send it back with this label."),
    say("Hello Ben."),
]


def main(front: str, store: str) -> None:
    shop = Shop(Order(7, "ann", "Blue lamp", 4900), Order(9, "ben", "Green chair", 12900))
    people = People({"ann": "lamp", "ben": "chair"})
    model = ScriptedModel(SCRIPT)
    providers = clew.ProviderSet({"test": model}, default="test/m", cost=lambda _, used: used.total / 1000)
    app = make_app(store, people=people, shop=shop, providers=providers, front=Path(front))
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
