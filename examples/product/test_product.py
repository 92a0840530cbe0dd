"""The product's own tests: a scripted model, and two people who must not see anything of one another."""

from __future__ import annotations

import base64
import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import clew
from clew.testing.scripted import Piece, ScriptedModel, call, say
from examples.product.app import make_app
from examples.product.desk import Order, Shop
from examples.product.people import People

pytestmark = pytest.mark.slow

Script = list[Piece | list[Piece]]


@contextmanager
def serving(folder: Path, script: Script) -> Generator[TestClient, None, None]:
    shop = Shop(Order(7, "ann", "Blue lamp", 4900), Order(9, "ben", "Green chair", 12900))
    people = People({"ann": "lamp", "ben": "chair"})
    model = clew.Model("test", "m")
    providers = clew.ProviderSet({"test": ScriptedModel(script)}, default=model, cost=lambda _, used: used.total / 1000)
    app = make_app(f"sqlite:///{folder}/desk.db", people=people, shop=shop, providers=providers)
    with TestClient(app) as client:
        yield client


def log_in(client: TestClient, name: str, password: str) -> None:
    assert client.post("/login", json={"name": name, "password": password}).json() == {"name": name}


def post(client: TestClient, chat: str, *parts: dict[str, Any]) -> list[dict[str, Any]]:
    """Send a message as the page does; the chunks of the answer."""
    message = {"id": f"m{len(parts)}", "role": "user", "parts": list(parts)}
    reply = client.post("/api/chat", json={"id": chat, "trigger": "submit-message", "messages": [message]})
    assert reply.status_code == 200, reply.text
    frames = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: {")]
    return [json.loads(frame) for frame in frames]


def outputs(client: TestClient, chat: str) -> list[Any]:
    shown = client.get(f"/chats/{chat}").json()
    return [part["output"] for message in shown for part in message["parts"] if "output" in part]


def test_only_who_knows_the_password_gets_in(tmp_path: Path) -> None:
    with serving(tmp_path, []) as client:
        for path in ("/chats", "/chats/x", "/spend", "/api/chat/x/stream", f"/api/blobs/{'0' * 64}"):
            assert client.get(path).status_code == 401
        for name, password in (("ann", "chair"), ("nobody", "lamp"), ("nobody", "")):
            assert client.post("/login", json={"name": name, "password": password}).status_code == 401
        assert client.get("/me").json() == {"name": None}
        log_in(client, "ann", "lamp")
        assert (client.get("/me").json(), client.get("/chats").json()) == ({"name": "ann"}, [])
        client.post("/logout")
        assert client.get("/chats").status_code == 401


def test_a_tool_finds_the_orders_of_whoever_asks_and_a_clerk_does_too(tmp_path: Path) -> None:
    """Models as arguments; a subagent's session has the same owner."""
    query = {"query": {"text": "lamp"}}
    script: Script = [
        call("find_orders", query),
        call("task", {"prompt": "Which lamp?", "agent": "clerk"}),
        call("find_orders", query),
        say("The blue one."),
        say("It is on its way."),
    ]
    with serving(tmp_path, script) as client:
        log_in(client, "ann", "lamp")
        post(client, "chat-1", {"type": "text", "text": "Where is my lamp?"})
        orders, task = outputs(client, "chat-1")
        assert orders == [
            {"number": 7, "customer": "ann", "article": "Blue lamp", "cents": 4900, "state": "on its way"}
        ]
        assert (task["status"], task["text"]) == ("completed", "The blue one.")
        # Five calls of 15 tokens each, the clerk's two among them.
        assert client.get("/spend").json() == {"calls": 5, "cost_usd": 0.075}


def test_money_is_paid_back_only_when_the_customer_has_said_so(tmp_path: Path) -> None:
    refund = {"refund": {"order": 7, "why": "It is broken."}}
    with serving(tmp_path, [call("pay_back", refund), say("Done.")]) as client:
        log_in(client, "ann", "lamp")
        chunks = post(client, "chat-1", {"type": "text", "text": "Pay it back"})
        (asked,) = [chunk for chunk in chunks if chunk["type"] == "tool-approval-request"]
        assert outputs(client, "chat-1") == []
        shown = client.get("/chats/chat-1").json()
        (part,) = [part for part in shown[1]["parts"] if part["type"] == "tool-pay_back"]
        part |= {"state": "approval-responded", "approval": {"id": asked["approvalId"], "approved": True}}
        reply = client.post("/api/chat", json={"id": "chat-1", "trigger": "submit-message", "messages": shown})
        assert reply.status_code == 200, reply.text
        assert outputs(client, "chat-1") == ["49.00 € for Blue lamp go back to ann"]


def test_a_label_is_a_picture_and_an_attachment_is_kept(tmp_path: Path) -> None:
    with serving(tmp_path, [call("draw_label", {"number": 7}), say("Here it is.")]) as client:
        log_in(client, "ann", "lamp")
        url = f"data:text/plain;base64,{base64.b64encode(b'It flickers.').decode()}"
        attached = {"type": "file", "mediaType": "text/plain", "filename": "note.txt", "url": url}
        post(client, "chat-1", {"type": "text", "text": "A label, please"}, attached)
        shown = client.get("/chats/chat-1").json()
        files = [part for message in shown for part in message["parts"] if part["type"] == "file"]
        note, label = (client.get(part["url"]) for part in files)
        assert note.content == b"It flickers."
        assert (label.headers["content-type"], label.content[:8]) == ("image/png", b"\x89PNG\r\n\x1a\n")
        log_in(client, "ben", "chair")
        assert [client.get(part["url"]).status_code for part in files] == [404, 404]


def test_nobody_sees_anything_of_anybody_else(tmp_path: Path) -> None:
    """Chats, files, what was spent, orders: another one's are not there, by any route, also clew's own."""
    steal = {"refund": {"order": 7, "why": "I want it."}}
    script: Script = [say("Hello Ann."), call("find_orders", {"query": {"text": ""}}), say("One chair.")]
    with serving(tmp_path, [*script, call("draw_label", {"number": steal["refund"]["order"]}), say("No.")]) as client:
        log_in(client, "ann", "lamp")
        post(client, "chat-1", {"type": "text", "text": "A secret"})
        assert client.get("/inside/api/health").json()["login"] == "host"
        (known,) = client.get("/inside/api/sessions").json()["sessions"]
        log_in(client, "ben", "chair")
        assert client.get("/chats").json() == []
        assert client.get("/spend").json() == {"calls": 0, "cost_usd": 0.0}
        assert client.get("/inside/api/sessions").json()["sessions"] == []
        for path in ("/chats/", "/inside/api/sessions/"):
            assert [client.get(path + name).status_code for name in ("chat-1", known["id"])] == [404, 404]
        # The same name is his own, another chat.
        post(client, "chat-1", {"type": "text", "text": "My orders?"})
        assert [order["number"] for order in outputs(client, "chat-1")[0]] == [9]
        post(client, "chat-2", {"type": "text", "text": "A label for 7"})
        assert outputs(client, "chat-2") == []
        assert "secret" not in client.get("/inside/api/search?q=secret").text.replace('"q"', "")
