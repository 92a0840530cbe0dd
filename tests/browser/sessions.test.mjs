/** The left side: the list of sessions, the search across them, and what is done with a session as a whole. */
import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { newContext, openPage, startServer, test } from "./kit.mjs";
import { becomes, begin, composer, goTo, message, openId, openSession, pane, rests, row, say, send, shown, stored, textOf, thread, told, until } from "./session.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));
let filled;
/** One with the examples in it. */
const filledServer = () =>
  (filled ??= startServer({ shared: true }).then(async (server) => {
    await server.call("POST", "/api/examples");
    return server;
  }));
const ALLOW_TASKS = [{ permission: "task", pattern: "*", action: "allow" }];
const list = (page) => page.getByRole("list", { name: "Session list" });
const searchField = (page) => page.getByRole("textbox", { name: "Search all sessions" });
const results = (page) => page.getByRole("region", { name: "Search results" });
const heading = (page, title) => pane(page).getByRole("heading", { level: 1 }).getByRole("button").filter({ hasText: title });
const focused = (page) => page.evaluate(() => document.activeElement?.getAttribute("data-message") ?? null);

async function pick(page, title, action) {
  await row(page, title).hover();
  await page.getByRole("button", { name: `Actions for ${title}` }).click();
  await page.getByRole("menuitem", { name: action }).click();
}

test("a session in the list tells its title, its age, its model and its tokens", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Ages and tokens" });
  await say(server, id, "one", "two");
  const session = await server.call("GET", `/api/sessions/${id}`);
  const context = await newContext();
  // Three hours and some later.
  await context.clock.setFixedTime(session.updated_at + 3 * 3_600_000 + 60_000);
  const page = await openPage(server, { context });
  const line = row(page, "Ages and tokens");
  await line.waitFor();
  assert.equal(await line.getByRole("time").innerText(), "3 h");
  assert.equal(await line.getByText("demo/echo", { exact: true }).count(), 1);
  assert.ok(session.total_tokens > 0);
  const tokens = line.getByTitle(`${session.total_tokens.toLocaleString("en")} tokens`, { exact: true });
  assert.match(await tokens.innerText(), /^· [\d.]+k?/);
});

test("a dot says that a session works, tries again, waits or failed, and goes when it rests", async () => {
  const server = await sharedServer();
  const asked = [
    ["Dot busy", { provider_id: "demo", model_id: "long", variant: "slow" }, "5000", "Working"],
    ["Dot retrying", "demo/fail", "429 99 100", "Retrying"],
    ["Dot waiting", "demo/tools", "!bash echo hello", "Waiting for you"],
    ["Dot failed", "demo/fail", "401", "Failed"],
  ];
  // Without any session there is no list yet.
  await begin(server, { title: "Dot at rest" });
  const page = await openPage(server);
  await list(page).waitFor();
  const ids = [];
  for (const [title, model, text] of asked) {
    const id = await begin(server, { title });
    ids.push(id);
    await server.call("POST", `/api/sessions/${id}/prompt`, { text, model });
  }
  for (const [title, , , words] of asked) await row(page, title).getByRole("img", { name: words, exact: true }).waitFor();
  // The tab of an open session says it too.
  for (const [index, mark] of ["…", "…", "❗", "✗"].entries()) {
    await page.goto(`${server.url}/#/s/${ids[index]}`);
    await becomes(() => page.title(), `${mark} ${asked[index][0]} · clew`);
  }
  for (const id of ids.slice(0, 3)) await server.call("POST", `/api/sessions/${id}/abort`);
  for (const [title] of asked.slice(0, 3)) await row(page, title).getByRole("img").waitFor({ state: "detached" });
  assert.equal(await row(page, "Dot failed").getByRole("img", { name: "Failed" }).count(), 1);
});

test("a branch stands indented under the session it left", async () => {
  const server = await sharedServer();
  const parent = await begin(server, { title: "The trunk" });
  await say(server, parent, "one");
  const [, answer] = await stored(server, parent);
  const from = { from_message_id: answer.id };
  const branch = await server.call("POST", `/api/sessions/${parent}/branch`, { ...from, metadata: { title: "A bough" } });
  const [, copied] = await stored(server, branch.id);
  await server.call("POST", `/api/sessions/${branch.id}/branch`, { from_message_id: copied.id, metadata: { title: "A twig" } });
  await say(server, await begin(server, { title: "Another tree" }), "newer");
  const page = await openPage(server);
  await row(page, "A twig").waitFor();
  const titles = await list(page).locator("bdi").allInnerTexts();
  const at = titles.indexOf("The trunk");
  assert.deepEqual(titles.slice(at, at + 3), ["The trunk", "A bough", "A twig"]);
  assert.ok(titles.indexOf("Another tree") < at);
  const left = async (title) => (await row(page, title).boundingBox()).x;
  const [trunk, bough, twig, other] = [await left("The trunk"), await left("A bough"), await left("A twig"), await left("Another tree")];
  assert.ok(trunk < bough && bough < twig, `${trunk} ${bough} ${twig}`);
  assert.equal(trunk, other);
  // The branch says where it comes from, and leads there.
  await row(page, "A bough").getByRole("link").click();
  await pane(page).getByRole("link", { name: "branched from The trunk" }).click();
  await until(() => openId(page) === parent, "the parent to open");
});

test("archived sessions and sidecars are listed only when asked for", async () => {
  const server = await sharedServer();
  const away = await begin(server, { title: "Put away" });
  await server.call("PATCH", `/api/sessions/${away}`, { archived: true });
  await begin(server, { title: "Asked beside", metadata: { ephemeral: true } });
  await begin(server, { title: "In plain sight" });
  const page = await openPage(server);
  await row(page, "In plain sight").waitFor();
  assert.deepEqual([await row(page, "Put away").count(), await row(page, "Asked beside").count()], [0, 0]);
  await page.getByRole("checkbox", { name: "Show archived" }).check();
  await row(page, "Put away").getByText("· archived").waitFor();
  assert.equal(await row(page, "Asked beside").count(), 0);
  await page.getByRole("checkbox", { name: "Show sidecars" }).check();
  await row(page, "Asked beside").getByText("· sidecar").waitFor();
  await page.getByRole("checkbox", { name: "Show archived" }).uncheck();
  await row(page, "Put away").waitFor({ state: "detached" });
  await page.getByRole("checkbox", { name: "Show sidecars" }).uncheck();
  await row(page, "Asked beside").waitFor({ state: "detached" });
  assert.equal(await row(page, "In plain sight").count(), 1);
});

test("a subagent is not in the list but linked under the turn that made it", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Has a subagent", model: "demo/tools", rules: ALLOW_TASKS });
  const page = await openSession(server, id);
  await send(page, "!task What is a labyrinth?");
  const link = thread(page).getByRole("link", { name: "Open the subagent’s session" });
  await link.waitFor();
  // The way there is shown before it has come to its end.
  await rests(server, id);
  const children = (await server.call("GET", `/api/sessions?parent=${id}&kind=subagent`)).sessions;
  assert.equal(children.length, 1);
  await row(page, "Has a subagent").waitFor();
  const titles = await list(page).getByRole("link").evaluateAll((all) => all.map((one) => one.getAttribute("href")));
  assert.ok(titles.includes(`#/s/${id}`));
  assert.ok(!titles.includes(`#/s/${children[0].id}`));
  await link.click();
  await until(() => openId(page) === children[0].id, "the subagent to open");
  await becomes(() => shown(thread(page)), told(await stored(server, children[0].id)));
  assert.equal(textOf((await stored(server, children[0].id))[0]), "What is a labyrinth?");
});

test("a search across sessions lands on the message", async () => {
  const server = await sharedServer();
  const here = await begin(server, { title: "Somewhere else" });
  const there = await begin(server, { title: "Far from here" });
  await say(server, there, "a pomegranate is red", ...Array.from({ length: 12 }, (_, index) => `${"filler ".repeat(60)}${index}`));
  const [asked] = await stored(server, there);
  const page = await openSession(server, here);
  await page.keyboard.press("Control+Shift+F");
  await searchField(page).fill("pomegranate");
  const hit = results(page).getByRole("link").filter({ hasText: "You" });
  await hit.waitFor();
  assert.equal(await hit.locator("mark").innerText(), "pomegranate");
  assert.equal(await results(page).getByRole("status").innerText(), "2 results");
  await hit.click();
  await becomes(() => focused(page), asked.id);
  assert.equal(openId(page), there);
  await until(() => message(thread(page), "You", "a pomegranate is red").isVisible(), "the message to be seen");
  await until(() => onScreen(page, asked.id), "the message to be on the screen");
});

test("a search finds what a rewind hid, says so, and opens it there", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Rewound words" });
  await say(server, id, "first", "an aubergine is purple", "third");
  const [, , asked] = await stored(server, id);
  await server.call("POST", `/api/sessions/${id}/rewind`, { message_id: asked.id, mode: "edit" });
  const page = await openPage(server);
  await searchField(page).fill("aubergine");
  const hit = results(page).getByRole("link").filter({ hasText: "You" });
  await hit.getByText("hidden", { exact: true }).waitFor();
  await hit.click();
  await becomes(() => focused(page), asked.id);
  const hidden = thread(page).getByRole("group", { name: "Undone messages" });
  assert.equal(await hidden.getByRole("button", { name: "Hide" }).getAttribute("aria-expanded"), "true");
  await until(() => onScreen(page, asked.id), "the message to be on the screen");
});

test("a search finds what was summarised and opens the summary at it", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Summarised words" });
  await say(server, id, "a nightshade is green", ...Array.from({ length: 7 }, (_, index) => `${"filler ".repeat(150)}${index}`));
  const [asked] = await stored(server, id);
  assert.equal((await server.call("POST", `/api/sessions/${id}/compact`)).compacted, true);
  const page = await openPage(server);
  await searchField(page).fill("nightshade");
  await results(page).getByRole("link").filter({ hasText: "a nightshade is green" }).filter({ hasText: "You" }).click();
  await becomes(() => focused(page), asked.id);
  assert.equal(await thread(page).getByRole("button", { name: "Hide original messages" }).count(), 1);
  await until(() => onScreen(page, asked.id), "the message to be on the screen");
});

test("a search lands on a message 1,500 turns back, and again after the reader has gone elsewhere", async () => {
  const server = await filledServer();
  const page = await openPage(server);
  await searchField(page).fill("turn 500");
  const hit = results(page).getByRole("link").filter({ hasText: "(turn 500)" }).filter({ hasText: "You" }).first();
  const asked = (await hit.getAttribute("href")).split("/m/")[1];
  await hit.click();
  await becomes(() => focused(page), asked);
  await until(() => onScreen(page, asked), "the message to be on the screen");
  assert.match(await thread(page).locator(`[data-message="${asked}"]`).innerText(), /\(turn 500\)$/m);
  await pane(page).getByRole("button", { name: "Jump to the end" }).click();
  await thread(page).getByText("(turn 2000)").last().waitFor();
  await until(async () => !(await onScreen(page, asked)), "the end");
  await hit.click();
  await until(() => onScreen(page, asked), "the message to be on the screen again");
  await becomes(() => focused(page), asked);
});

test("a search goes by keyboard alone, finds titles too, and Esc gives the list back", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Cucumbers of the world" });
  await say(server, id, "nothing about them here");
  const page = await openPage(server);
  await list(page).waitFor();
  await page.keyboard.press("Control+Shift+F");
  await until(() => searchField(page).evaluate((one) => one === document.activeElement), "the search to have the focus");
  await page.keyboard.type("cucumbers");
  await page.keyboard.press("Enter");
  await until(() => openId(page) === id, "the session to open");
  await searchField(page).fill("xylophone quartz");
  await results(page).getByText("No results. All words must be in one message.").waitFor();
  await searchField(page).press("Escape");
  await list(page).waitFor();
});

test("a new session is begun by its first message, and is open at once; none is made before", async () => {
  const server = await startServer();
  const count = async () => (await server.call("GET", "/api/sessions")).sessions.length;
  const page = await openPage(server);
  await page.getByRole("complementary", { name: "Sessions" }).getByRole("button", { name: "New session" }).click();
  await until(() => composer(page).evaluate((field) => field === document.activeElement), "the focus");
  await page.getByRole("combobox", { name: "Mode" }).selectOption("read_only");
  await composer(page).focus();
  await page.keyboard.type("/rewind");
  await page.keyboard.press("Enter");
  await page.getByText("No session yet: send a message before using /rewind.").waitFor();
  assert.equal(await count(), 0);
  await page.keyboard.type("What is clew?");
  await page.keyboard.press("Enter");
  await message(thread(page), "You", "What is clew?").waitFor();
  const id = openId(page);
  await until(async () => (await stored(server, id)).length === 2, "an answer");
  assert.equal((await server.call("GET", `/api/sessions/${id}`)).mode, "read_only");
  // Ctrl J begins another one, and what is typed there waits for whoever comes back.
  await page.keyboard.press("Control+j");
  await until(() => page.evaluate(() => location.hash === "#/"), "the landing page");
  await message(thread(page), "You", "What is clew?").waitFor({ state: "detached" });
  await composer(page).fill("later");
  await page.reload();
  await until(async () => (await composer(page).inputValue()) === "later", "the draft");
  assert.equal(await count(), 1);
});

test("the list goes on by itself, in groups, and marks what is open however far down it is", async () => {
  const server = await startServer();
  const folder = join(server.folder, "labyrinth");
  await mkdir(folder);
  const { id: old } = await server.call("POST", "/api/sessions", { title: "The oldest", workspace_root: folder });
  for (let n = 0; n < 120; n += 1) await begin(server, { title: `Later ${n}` });
  const page = await openSession(server, old);
  await until(async () => (await row(page, "The oldest").getByRole("link").getAttribute("aria-current")) === "page", "the mark");
  assert.deepEqual(await list(page).getByRole("heading").allTextContents(), ["Today"]);
  await until(async () => {
    await list(page).locator("li[data-row]").last().scrollIntoViewIfNeeded();
    return (await list(page).locator("li[data-row]").count()) === 121;
  }, "the rest of the list");
  await page.getByRole("combobox", { name: "Group sessions" }).selectOption("By folder");
  await until(async () => (await list(page).getByRole("heading").allTextContents()).includes("labyrinth"), "the folder");
  await page.reload();
  await list(page).getByRole("list", { name: folder }).getByText("The oldest").waitFor();
});

test("a session works in the folder and as the agent that were chosen for it, and a folder that is none is said", async () => {
  const server = await startServer();
  const folder = join(server.folder, "elsewhere");
  const page = await openPage(server);
  const field = page.getByRole("combobox", { name: "Folder" });
  // What is below the folder written so far is offered.
  await mkdir(join(server.folder, "nearby"));
  await field.fill(join(server.folder, "ne"));
  await page.locator(`datalist option[value="${join(server.folder, "nearby")}"]`).waitFor({ state: "attached" });
  await field.fill(folder);
  page.allow(/status of 422/);
  // Enter takes it, and what is typed next is said there.
  await field.press("Enter");
  await page.keyboard.type("hello there");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").getByText("is not a folder").waitFor();
  assert.equal(await composer(page).inputValue(), "hello there");
  await mkdir(folder);
  await composer(page).press("Enter");
  await message(thread(page), "You", "hello there").waitFor();
  assert.equal((await server.call("GET", `/api/sessions/${openId(page)}`)).workspace_root, folder);
  // A link with the token, opened here, leaves whoever is at work where they are.
  const here = await page.evaluate(() => location.hash);
  await page.evaluate((token) => (location.hash = `#token=${token}`), server.token);
  await until(async () => (await page.evaluate(() => location.hash)) === here, "the place was lost");
  await message(thread(page), "You", "hello there").waitFor();
});

test("on a store that wants to know who works where, a session is begun as on any other", async () => {
  // A relative folder is one of the server's own.
  const server = await startServer({ store: "json:store" });
  const page = await openPage(server);
  await page.getByRole("complementary", { name: "Sessions" }).getByRole("button", { name: "New session" }).click();
  await send(page, "hello");
  await message(thread(page), "You", "hello").waitFor();
  const { metadata, workspace_root: workspace } = await server.call("GET", `/api/sessions/${openId(page)}`);
  assert.deepEqual([metadata.workerId, metadata.workspaceId], ["local", workspace]);
});

test("a session is renamed in the list and above the conversation; Esc keeps the old title", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Old name" });
  const title = async () => (await server.call("GET", `/api/sessions/${id}`)).title;
  const page = await openSession(server, id);
  const field = page.getByRole("textbox", { name: "Session title" });
  await pick(page, "Old name", "Rename");
  await field.fill("New name");
  await field.press("Enter");
  await row(page, "New name").waitFor();
  await becomes(title, "New name");
  await becomes(() => page.title(), "New name · clew");
  await row(page, "New name").getByRole("link").press("F2");
  await field.fill("Never mind");
  await field.press("Escape");
  await row(page, "New name").waitFor();
  await heading(page, "New name").click();
  await field.fill("Name from above");
  await field.press("Enter");
  await row(page, "Name from above").waitFor();
  await heading(page, "Name from above").waitFor();
  await becomes(title, "Name from above");
});

test("a session is archived and comes back", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Comes and goes" });
  const archived = async () => (await server.call("GET", `/api/sessions/${id}`)).archived_at !== null;
  const page = await openSession(server, id);
  await pick(page, "Comes and goes", "Archive");
  await row(page, "Comes and goes").waitFor({ state: "detached" });
  assert.equal(await archived(), true);
  await pane(page).getByText("archived", { exact: true }).waitFor();
  await page.getByRole("checkbox", { name: "Show archived" }).check();
  await pick(page, "Comes and goes", "Unarchive");
  await becomes(archived, false);
  await pane(page).getByText("archived", { exact: true }).waitFor({ state: "detached" });
  await page.getByRole("checkbox", { name: "Show archived" }).uncheck();
  await row(page, "Comes and goes").waitFor();
});

test("a session is deleted only after a confirmation, and the page leaves it", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Not for long" });
  await say(server, id, "one");
  const page = await openSession(server, id);
  const dialog = page.getByRole("dialog", { name: "Delete this session?" });
  await pick(page, "Not for long", "Delete…");
  await dialog.getByText("Not for long", { exact: true }).waitFor();
  // Enter, pressed too soon, keeps it.
  await until(() => dialog.getByRole("button", { name: "Cancel" }).evaluate((one) => one === document.activeElement), "the focus");
  await page.keyboard.press("Enter");
  await dialog.waitFor({ state: "detached" });
  assert.equal((await stored(server, id)).length, 2);
  await row(page, "Not for long").getByRole("link").press("Delete");
  await dialog.getByRole("button", { name: "Delete permanently" }).click();
  await row(page, "Not for long").waitFor({ state: "detached" });
  await page.getByRole("main", { name: "New conversation" }).waitFor();
  await assert.rejects(server.call("GET", `/api/sessions/${id}`), /session_not_found/);
});

test("examples are loaded into an empty store, and each of them opens without a complaint", async () => {
  const server = await startServer();
  const page = await openPage(server);
  await page.getByRole("button", { name: "Load examples" }).click();
  await until(() => openId(page), "the first of them to open");
  const { sessions } = await server.call("GET", "/api/sessions");
  assert.equal(sessions.length, 7);
  for (const session of sessions) {
    await row(page, session.title).getByRole("link").click();
    await until(() => openId(page) === session.id, session.title);
    const last = (await stored(server, session.id, "?limit=1")).at(-1);
    await thread(page).locator(`[data-message="${last.id}"]`).waitFor();
    await heading(page, session.title).waitFor();
    assert.deepEqual(page.problems, []);
    assert.equal(await page.getByRole("alert").count(), 0);
  }
  // The samples show what they are named after.
  await goTo(page, sessions.find(({ title }) => title === "Sample: compacted twice").id);
  await thread(page).getByRole("button", { name: /^Summarised \d+ earlier turns$/ }).waitFor();
  await goTo(page, sessions.find(({ title }) => title === "Sample: waiting for approval").id);
  await thread(page).getByRole("button", { name: "Allow once" }).waitFor();
  await goTo(page, sessions.find(({ title }) => title === "Sample: diverging branches").id);
  await thread(page).getByRole("group", { name: "Versions" }).first().waitFor();
});

test("a session is exported as a file that holds what the server says", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "To take/along" });
  await say(server, id, "**one**", "two");
  const page = await openSession(server, id);
  await heading(page, "To take/along").waitFor();
  for (const [name, format] of [["JSON", "json"], ["Markdown", "md"], ["HTML", "html"]]) {
    await pane(page).getByRole("button", { name: "Export" }).click();
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("menuitem", { name: `Export as ${name}` }).click()]);
    assert.equal(download.suggestedFilename(), `To take along.${format}`);
    const answer = await fetch(`${server.url}/api/sessions/${id}/export?format=${format}`, { headers: { authorization: `Bearer ${server.token}` } });
    assert.equal(plain(await readFile(await download.path(), "utf8")), plain(await answer.text()));
  }
});

/** An export without the moment it was made. */
function plain(text) {
  return text.replaceAll(/"exported_at":\s*\d+/g, "");
}

/** Whether a message is inside what is seen of the conversation. */
async function onScreen(page, id) {
  return thread(page).evaluate((frame, name) => {
    const box = frame.querySelector(`[data-message="${name}"]`)?.getBoundingClientRect();
    const seen = frame.getBoundingClientRect();
    return box !== undefined && box.bottom > seen.top && box.top < seen.bottom;
  }, id);
}
