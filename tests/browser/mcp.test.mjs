/** MCP servers on the page: what one says its tools are is looked at before it is taken, and how each server is. */
import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { CLEW, startServer, test } from "./kit.mjs";
import { answers, button, newSession, openSession, say } from "./talk.mjs";

const RUDE = fileURLToPath(new URL("../integration/mcp_rude.py", import.meta.url));

test("what a server says its tools are is read and allowed on the page, and the settings say how it is", async () => {
  const folder = await mkdtemp(join(tmpdir(), "clew-browser-"));
  await mkdir(join(folder, "clew"));
  const words = [join(dirname(CLEW), "python"), ["-I", RUDE]].map((one) => JSON.stringify(one));
  const config = `[mcp_servers.rude]\ncommand = ${words[0]}\nargs = ${words[1]}\n[mcp_servers.gone]\ncommand = "/nowhere/at-all"\n`;
  await writeFile(join(folder, "clew", "config.toml"), config);
  const server = await startServer({ env: { XDG_CONFIG_HOME: folder } });
  const { id } = await newSession(server, "demo/tools");
  const page = await openSession(server, id);
  await say(page, "!mcp__rude");
  const door = page.getByRole("group", { name: "Approve this mcp__rude call?" });
  const shown = await door.getByRole("group", { name: "Change" }).innerText();
  assert.match(shown, /\+ ## mcp__rude__echo\n\+   It can echo\.\n\+ takes \{"type":"object","properties":\{\}\}/);
  await button(door, "For this session").click();
  await answers(page).getByText(/available tools: mcp__rude__/).waitFor();
  await say(page, '!mcp__rude__echo {"word": "hello"}');
  await button(page.getByRole("group", { name: "Approve this mcp__rude__echo call?" }), "Allow once").click();
  await answers(page).getByText(/\{"word": "hello"\}/).last().waitFor();
  await page.getByRole("button", { name: "Settings" }).click();
  const listed = page.getByRole("region", { name: "MCP servers" });
  await listed.getByText(/^ready · \d+ tools/).waitFor();
  await listed.getByText("it could not be started: [Errno 2] No such file or directory: '/nowhere/at-all'").waitFor();
  await listed.getByRole("button", { name: "Start rude" }).click();
  await listed.getByText("Tool definitions").click();
  await listed.getByText("## mcp__rude__echo").waitFor();
  await rm(folder, { recursive: true, force: true });
});
