/** Work that is alive: what runs tells how far it is, and the same after a reload; turns stand apart. */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { audit, startServer, test } from "./kit.mjs";
import { messagesOf, newSession, openSession, settled, until } from "./scenes.mjs";
import { say } from "./talk.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));

test("a running tool counts its seconds, and says how long it took when it has ended, after a reload too", async () => {
  const server = await sharedServer();
  const root = join(server.folder, "seconds");
  await mkdir(root);
  const id = await newSession(server, "Seconds", "demo/tools", { workspace_root: root });
  await server.call("PUT", `/api/sessions/${id}/permissions`, { rules: [{ permission: "bash", pattern: "*", action: "allow" }] });
  const page = await openSession(server, id);
  // It ends when the file is there.
  await say(page, "!bash echo begun; while [ ! -e go ]; do sleep 0.1; done; exit 3");
  const card = page.locator("[data-tool=bash]");
  const counted = async () => Number(/· (\d+) s/.exec(await card.textContent())?.[1] ?? 0);
  await until(async () => (await counted()) >= 1, "no seconds");
  await page.reload();
  await until(async () => (await counted()) >= 2, "no seconds after a reload");
  await card.getByRole("log").getByText("begun").waitFor();
  assert.deepEqual(await audit(page), []);
  await writeFile(join(root, "go"), "");
  const ended = card.getByText(/^exit code 3 · \d+\.\d s$/);
  await ended.waitFor();
  await page.reload();
  await ended.waitFor();
  await say(page, "next");
  await settled(server, id);
  await page.getByRole("article", { name: "Assistant" }).getByText("next").waitFor();
  // A line between turns, a mark between steps.
  assert.equal(await page.locator("[data-row] > hr").count(), 1);
  await page.getByRole("separator", { name: "Step 2" }).waitFor();
});

test("a subagent shows what it says and took in the call that started it, and leads to all of it", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "Subagent", "demo/tools:slow");
  await server.call("PUT", `/api/sessions/${id}/permissions`, { rules: [{ permission: "task", pattern: "*", action: "allow" }] });
  const page = await openSession(server, id);
  // So long that it ends only when it is told to.
  await say(page, `!task ${Array.from({ length: 6000 }, (_, number) => `word${number}`).join(" ")}`);
  const child = page.getByRole("group", { name: "Subagent" }).last();
  await child.getByText(/word2\d/).waitFor();
  await page.reload();
  await child.getByText(/word\d+/).waitFor();
  assert.deepEqual(await audit(page), []);
  await server.call("POST", `/api/sessions/${id}/abort`);
  await settled(server, id);
  await say(page, "!task find the thread");
  await child.getByText(/^1 step · [\d.]+k? tokens$/).waitFor();
  const [, call] = (await messagesOf(server, id)).flatMap(({ parts }) => parts).filter(({ type }) => type === "tool-task");
  await child.getByRole("link", { name: "Open the subagent’s session" }).click();
  await until(async () => (await page.evaluate(() => location.hash)) === `#/s/${call.output.session_id}`, "not opened");
  await page.getByRole("group", { name: "Subagent" }).first().waitFor({ state: "detached" });
  await page.getByRole("article", { name: "Assistant" }).getByText("find the thread").waitFor();
});
