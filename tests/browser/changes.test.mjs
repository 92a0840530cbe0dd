/** Files of a workspace that go back: what a session changed, what a rewind restores, and what is left alone. */
import assert from "node:assert/strict";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { startServer, test } from "./kit.mjs";
import { becomes, composer, openSession, pane, rests, send, shown, stored, thread, until } from "./session.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));
const WIDE = { width: 1600, height: 1000 };
const LINES = ["host = 'localhost'", "port = 80", ...Array.from({ length: 12 }, (_, at) => `line ${at}`), "debug = False"];
const BEFORE = `${LINES.join("\n")}\n`;
const AFTER = BEFORE.replace("port = 80", "port = 8080").replace("debug = False", "debug = True");
const BREAK = "!bash sed -i 's/port = 80/port = 8080/;s/debug = False/debug = True/' app.py";
const ALLOW = [{ permission: "*", pattern: "*", action: "allow" }, { permission: "bash", pattern: "sed -i *", action: "allow" }];

let folders = 0;
/** A session in a folder of its own with one file. */
async function project(server, title, rules = ALLOW) {
  const root = join(server.folder, `project-${(folders += 1)}`);
  await mkdir(root);
  await writeFile(join(root, "app.py"), BEFORE);
  const { id } = await server.call("POST", "/api/sessions", { model: "demo/tools", title, workspace_root: root });
  await server.call("PUT", `/api/sessions/${id}/permissions`, { rules });
  return { id, root, file: () => readFile(join(root, "app.py"), "utf8") };
}

async function ask(server, id, text) {
  await server.call("POST", `/api/sessions/${id}/prompt`, { text });
  await rests(server, id);
}

async function changesTab(page) {
  await page.keyboard.press("Control+i");
  await page.getByRole("tab", { name: "Changes" }).click();
  return page.getByRole("tabpanel", { name: "Changes" });
}

const rewindTo = (page, text) => thread(page).getByRole("article", { name: "You" }).filter({ hasText: text }).getByRole("button", { name: "Rewind to here" }).click();
const question = (page, title = "Rewind") => page.getByRole("dialog", { name: title });
const notice = (page) => pane(page).getByRole("status").filter({ hasText: /[Rr]estored/ });

test("what a shell command broke is shown, goes back with a rewind, and comes back with its undo", async () => {
  const server = await sharedServer();
  const { id, file } = await project(server, "Broken by sed", []);
  await ask(server, id, "hello");
  const page = await openSession(server, id, WIDE);
  // The file may have gone back while its difference is asked for.
  page.allow(/404.*changes\/diff/);
  const tab = await changesTab(page);
  await tab.getByText("No changed files.").waitFor();
  await send(page, BREAK);
  // A press half a second after the request appeared is one at it.
  await page.locator("[data-decision=once]:not([aria-disabled])").click();
  const row = tab.getByRole("button", { name: "Modified app.py" });
  await row.waitFor();
  await rests(server, id);
  assert.equal(await file(), AFTER);
  const diff = tab.getByRole("group", { name: "Changes of app.py" });
  await becomes(() => diff.locator("section > div").filter({ hasText: /[−+]/ }).evaluateAll((all) => all.map((line) => [...line.children].map((cell) => cell.textContent))), [
    ["2", "", "−", "port = 80"], ["", "2", "+", "port = 8080"], ["15", "", "−", "debug = False"], ["", "15", "+", "debug = True"],
  ]);
  const before = await shown(thread(page));

  await rewindTo(page, BREAK);
  await question(page).getByText("1 file has changed since this message.").waitFor();
  assert.equal(await question(page).getByRole("radio", { name: /Conversation only/ }).isChecked(), true);
  await question(page).getByRole("radio", { name: /Conversation and files/ }).check();
  await question(page).getByRole("button", { name: "Rewind and restore files" }).click();
  await notice(page).getByText("Restored app.py.").waitFor();
  assert.equal(await file(), BEFORE);
  await tab.getByText("No changed files.").waitFor();
  assert.equal((await stored(server, id)).length, 2);

  await notice(page).getByRole("button", { name: "Undo" }).click();
  await becomes(() => file(), AFTER);
  await becomes(() => shown(thread(page)), before);
  await row.waitFor();
});

test("Enter rewinds the conversation alone, and nothing is asked where no file has changed", async () => {
  const server = await sharedServer();
  const { id, file } = await project(server, "Alone");
  await ask(server, id, "hello");
  await ask(server, id, BREAK);
  await ask(server, id, "goodbye");
  const page = await openSession(server, id, WIDE);
  await rewindTo(page, "goodbye");
  await becomes(() => composer(page).inputValue(), "goodbye");
  assert.equal(await question(page).count(), 0);
  await rewindTo(page, BREAK);
  await question(page).getByRole("radio", { name: /Conversation only/ }).press("Enter");
  await becomes(async () => (await stored(server, id)).length, 2);
  await question(page).waitFor({ state: "detached" });
  assert.equal(await file(), AFTER);
  // The undone turn left the files as they are, so nothing is asked either.
  await thread(page).getByRole("group", { name: "Undone messages" }).getByRole("button", { name: "Restore" }).click();
  await becomes(async () => (await stored(server, id)).length, 4);
  assert.equal(await file(), AFTER);
});

test("a cancelled question changes nothing, and files go back alone or before an edited message runs", async () => {
  const server = await sharedServer();
  const { id, file } = await project(server, "Edited");
  await ask(server, id, "hello");
  await ask(server, id, BREAK);
  const page = await openSession(server, id, WIDE);
  await rewindTo(page, "hello");
  await question(page).press("Escape");
  await question(page).waitFor({ state: "detached" });
  assert.deepEqual([(await stored(server, id)).length, await file()], [4, AFTER]);
  await rewindTo(page, BREAK);
  await question(page).getByRole("radio", { name: /Files only/ }).check();
  await question(page).getByRole("button", { name: "Restore files" }).click();
  await notice(page).waitFor();
  assert.deepEqual([(await stored(server, id)).length, await file()], [4, BEFORE]);
  await notice(page).getByRole("button", { name: "Undo" }).click();
  await becomes(() => file(), AFTER);

  const own = thread(page).getByRole("article", { name: "You" }).last();
  await own.getByRole("button", { name: "Edit and resend" }).click();
  const field = thread(page).getByRole("textbox", { name: "The message" });
  await field.fill("!bash cat app.py");
  await field.press("Enter");
  await question(page, "Edit and resend").getByRole("radio", { name: /Conversation and files/ }).check();
  assert.equal(await question(page, "Edit and resend").getByRole("radio", { name: /Files only/ }).count(), 0);
  await question(page, "Edit and resend").getByRole("button", { name: "Send and restore files" }).click();
  await until(async () => JSON.stringify((await stored(server, id)).at(-1)).includes("port = 80\\n"), "the output of the old file");
  assert.equal(await file(), BEFORE);
  await field.waitFor({ state: "detached" });
});

test("a hunk is reverted alone, and a whole file after a confirmation", async () => {
  const server = await sharedServer();
  const { id, file } = await project(server, "Hunks");
  await ask(server, id, BREAK);
  const page = await openSession(server, id, WIDE);
  // The file may have gone back while its difference is asked for.
  page.allow(/404.*changes\/diff/);
  const tab = await changesTab(page);
  await tab.getByRole("button", { name: "Revert the lines @@ -12,4 +12,4 @@" }).press("Enter");
  const dialog = page.getByRole("dialog", { name: "Revert these lines?" });
  await dialog.getByRole("button", { name: "Revert", exact: true }).click();
  await becomes(() => file(), AFTER.replace("debug = True", "debug = False"));
  await becomes(() => tab.getByRole("button", { name: /^Revert the lines/ }).count(), 1);
  await tab.getByRole("button", { name: "Revert file app.py" }).click();
  const whole = page.getByRole("dialog", { name: "Revert this file?" });
  await whole.getByRole("button", { name: "Cancel" }).click();
  assert.notEqual(await file(), BEFORE);
  await tab.getByRole("button", { name: "Revert file app.py" }).click();
  await whole.getByRole("button", { name: "Revert", exact: true }).click();
  await becomes(() => file(), BEFORE);
  await tab.getByText("No changed files.").waitFor();
});

test("a file that a person changed is a conflict, left alone unless its box is ticked", async () => {
  const server = await sharedServer();
  const { id, root, file } = await project(server, "Conflict");
  await ask(server, id, "hello");
  await ask(server, id, `${BREAK}\n!write new.txt made`);
  const mine = AFTER.replace("line 3", "mine");
  await writeFile(join(root, "app.py"), mine);
  const page = await openSession(server, id, WIDE);
  await rewindTo(page, BREAK);
  await question(page).getByRole("radio", { name: /Files only/ }).check();
  await question(page).getByText("Changed by someone else, left alone").waitFor();
  await question(page).getByText("is deleted").waitFor();
  await question(page).getByRole("button", { name: "Restore files" }).click();
  await notice(page).getByText("Restored new.txt. Left alone, changed by someone else: app.py.").waitFor();
  assert.equal(await file(), mine);
  await rewindTo(page, BREAK);
  await question(page).getByRole("radio", { name: /Files only/ }).check();
  await question(page).getByRole("checkbox", { name: "Overwrite app.py" }).check();
  await question(page).getByRole("button", { name: "Restore files" }).click();
  await becomes(() => file(), BEFORE);
});

test("files do not go back while another run works in the folder", async () => {
  const server = await sharedServer();
  const { id, root, file } = await project(server, "Busy folder");
  await ask(server, id, BREAK);
  const { id: other } = await server.call("POST", "/api/sessions", { model: "demo/long:slow", workspace_root: root });
  await server.call("POST", `/api/sessions/${other}/prompt`, { text: "5000" });
  const page = await openSession(server, id, WIDE);
  page.allow(/409/);
  await rewindTo(page, BREAK);
  await question(page).getByRole("radio", { name: /Conversation and files/ }).check();
  await question(page).getByRole("button", { name: "Rewind and restore files" }).click();
  await pane(page).getByRole("alert").waitFor();
  assert.deepEqual([(await stored(server, id)).length, await file()], [2, AFTER]);
  await server.call("POST", `/api/sessions/${other}/abort`);
  await rests(server, other);
});

test("changes that cannot be loaded say so, and are tried again", async () => {
  const server = await sharedServer();
  const { id } = await project(server, "Retried");
  await ask(server, id, BREAK);
  const page = await openSession(server, id, WIDE);
  page.allow(/500/);
  const at = "**/changes";
  await page.route(at, (route) => route.fulfill({ status: 500, json: { code: "internal", detail: "the disk is full", status: 500, title: "", type: "" } }));
  const tab = await changesTab(page);
  await tab.getByRole("alert").getByText("Could not load the changes").waitFor();
  await page.unroute(at);
  await tab.getByRole("button", { name: "Retry" }).click();
  await tab.getByRole("button", { name: "Modified app.py" }).waitFor();
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await tab.getByRole("button", { name: "Copy patch" }).click();
  await becomes(async () => (await page.evaluate(() => navigator.clipboard.readText())).split("\n").filter((line) => /^[-+][a-z]/.test(line)), ["-port = 80", "+port = 8080", "-debug = False", "+debug = True"]);
});

test("a comparison of two branches shows how their files differ", async () => {
  const server = await sharedServer();
  const { id } = await project(server, "Compared");
  await ask(server, id, "hello");
  const [first] = await stored(server, id);
  const other = await server.call("POST", `/api/sessions/${id}/branch`, { from_message_id: first.id, worktree: join(server.folder, "other-way"), metadata: { title: "Other way" } });
  await server.call("PUT", `/api/sessions/${other.id}/permissions`, { rules: ALLOW });
  await ask(server, id, BREAK);
  await ask(server, other.id, "!bash sed -i s/80/9090/ app.py");
  const page = await openSession(server, id, WIDE);
  await page.keyboard.press("Control+i");
  await page.getByRole("tab", { name: "Tree" }).click();
  await page.getByRole("tabpanel", { name: "Tree" }).getByRole("button", { name: "Compare" }).click();
  const files = page.getByRole("dialog", { name: "Compare versions" }).getByRole("region", { name: "Files" });
  await files.getByText("1 file differs").waitFor();
  await files.getByRole("button", { name: "app.py" }).click();
  const lines = files.getByRole("group", { name: "Changes of app.py" }).locator("section > div");
  await becomes(async () => (await lines.allTextContents()).filter((line) => /[−+]/.test(line)), ["2−port = 8080", "2+port = 9090", "15−debug = True", "15+debug = False"]);
});

test("a session without a folder has no changes to show", async () => {
  const server = await sharedServer();
  const { id } = await server.call("POST", "/api/sessions", { model: "demo/echo", workspace_root: null });
  const page = await openSession(server, id, WIDE);
  const tab = await changesTab(page);
  await tab.getByText("This session has no folder").waitFor();
});
