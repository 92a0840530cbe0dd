"""An MCP server on the official SDK, run by the tests as a program; it speaks the newest protocol."""

from __future__ import annotations

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("modern", version="1")


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def touch(ctx: Context) -> str:
    """Change the door, and come by a new tool for it."""
    server.add_tool(slam, description="Slam the door.")
    await ctx.notify_tools_changed()
    await ctx.notify_resource_updated("note://door")
    return "touched"


async def slam() -> str:
    return "bang"


@server.resource("note://door")
def door() -> str:
    return "green"


server.run("stdio")
