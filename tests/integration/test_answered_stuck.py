"""An answer that is taken while the turn cannot go on: nothing waits any more, and the session can be continued."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.http_client import SocketClient
from tests.integration.processes import command, serving

pytestmark = pytest.mark.rule("SR-5")


@pytest.mark.parametrize(
    ("answers", "decision"),
    [("one", "once"), ("one", "session"), ("one", "project"), ("one", "deny"), ("all", "once"), ("all", "project")],
)
async def test_an_answer_whose_turn_cannot_go_on_leaves_nothing_waiting(
    answers: str, decision: str, tmp_path: Path
) -> None:
    """The owner's workspace leads elsewhere for a while: status and message tell the same."""
    workspace = tmp_path / "work" / "sub"
    workspace.mkdir(parents=True)
    (tmp_path / "out").mkdir()
    code, token, _ = await command(tmp_path, "token", "add", "ada", "--root", str(tmp_path / "work"))
    assert code == 0
    async with serving(tmp_path) as server:
        client = SocketClient(server.client.port, token.strip())
        session_id = await client.session(model="demo/tools", workspace_root=str(workspace))
        await client.prompt(session_id, "!write a.txt hello")
        [wait] = (await client.idle(session_id))["waiting"]
        path = f"/api/sessions/{session_id}"
        approve = f"{path}/approvals/{wait['approval_id']}" if answers == "one" else f"{path}/approvals"

        workspace.rename(tmp_path / "work" / "away")
        workspace.symlink_to(tmp_path / "out")
        refused = await client.request("POST", approve, {"decision": decision})
        assert (refused.status, refused.code) == (422, "invalid_input")
        assert await client.status(session_id) == {"state": "idle"}
        answered = (await client.messages(session_id))[-1]["parts"][-1]
        assert (answered["state"], answered["approval"]["answered_by"]) == ("approval-responded", "ada")

        workspace.unlink()
        (tmp_path / "work" / "away").rename(workspace)
        assert (await client.request("POST", f"{path}/continue", {})).status == 202
        assert await client.idle(session_id) == {"state": "idle"}
        assert list((tmp_path / "out").iterdir()) == []
