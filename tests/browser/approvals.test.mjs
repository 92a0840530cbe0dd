/** Calls that wait for approval, and questions: what is shown, every answer there is, and where else it may come from. */
import assert from "node:assert/strict";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { startServer, test } from "./kit.mjs";
import { atRest } from "./scenes.mjs";
import { AWAY, answers, assertBegins, button, hurry, newSession, openSession, say, status, until } from "./talk.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));

const SLOW_GUIDE = { provider_id: "demo", model_id: "tour", variant: "slow" };
const thread = (page) => page.getByRole("main").getByRole("region", { name: "Messages" });
const asking = (page) => page.getByRole("group", { name: "Approve this command?" });

test("a call that waits shows exactly what it would do and which rule asked", async () => {
  const server = await sharedServer();
  const id = await toolSession(server);
  await server.call("PUT", `/api/sessions/${id}/permissions`, { rules: [{ permission: "bash", pattern: "echo *", action: "ask" }] });
  const command = `echo "two  spaces" '<b>not bold</b>' && echo **stars** \${HOME}`;
  const page = await openSession(server, id);
  await say(page, `!bash ${command}`);
  assert.equal(await asking(page).getByRole("group", { name: "Command" }).innerText(), command);
  await asking(page).getByText("Required by the rule “bash echo *: ask” of this session.").waitFor();
  await page.getByRole("main").getByRole("status").getByText("Waiting for you").waitFor();
  await page.getByText("waiting for you", { exact: true }).waitFor();
  await button(asking(page), "Allow once").click();
  await answers(page).getByText(/^bash \w+: two spaces <b>not bold<\/b>/).waitFor();
});

test("a call that no rule covers says so", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await toolSession(server));
  await say(page, '!write notes.txt {"a": 1}');
  const group = page.getByRole("group", { name: "Approve this write call?" });
  await group.getByText("Needs your approval").waitFor();
  assert.equal(await group.getByRole("group", { name: "Path" }).innerText(), "notes.txt");
  assert.equal(await group.getByRole("group", { name: "Change" }).innerText(), '@@ -0,0 +1 @@\n+ {"a": 1}');
  await group.getByText(": a new file").waitFor();
  assert.equal(await group.getByRole("list", { name: "Affected" }).innerText().then((text) => text.replace(/\s+/g, " ")), "write · path notes.txt in the workspace");
  assert.deepEqual(await group.getByLabel("“Always allow” would cover").locator("option").allTextContents(), ["write notes.txt, and nothing else", "write anything in this workspace"]);
});

test("an edit is asked about as a difference, and shows afterwards how much it changed", async () => {
  const server = await sharedServer();
  const folder = join(server.folder, "edited");
  await mkdir(folder);
  await writeFile(join(folder, "menu.txt"), "soup\nbread\n<b>salt</b>\n");
  const page = await openSession(server, await toolSession(server, folder));
  await say(page, `!edit ${JSON.stringify({ path: "menu.txt", old: "bread", new: "rye bread\nbutter" })}`);
  const group = page.getByRole("group", { name: "Approve this edit call?" });
  const change = group.getByRole("group", { name: "Change" });
  assert.equal(await change.innerText(), "@@ -1,3 +1,4 @@\n  soup\n− bread\n+ rye bread\n+ butter\n  <b>salt</b>");
  await button(group, "Allow once").click();
  await page.getByRole("button", { name: "edit menu.txt +2 −1 done" }).waitFor();
  assert.equal(await readFile(join(folder, "menu.txt"), "utf8"), "soup\nrye bread\nbutter\n<b>salt</b>\n");
  // A file that is written over is asked about as what differs, too.
  await say(page, "!write menu.txt soup");
  const over = page.getByRole("group", { name: "Approve this write call?" });
  assert.equal(await over.getByRole("group", { name: "Change" }).innerText(), "@@ -1,4 +1 @@\n  soup\n− rye bread\n− butter\n− <b>salt</b>");
  await button(over, "Allow once").click();
  await page.getByRole("button", { name: "write menu.txt +0 −3 done" }).click();
  await page.reload();
  const card = page.locator("[data-tool=write]");
  await card.getByRole("button", { name: /^write menu.txt/ }).click();
  await card.getByText("− <b>salt</b>").waitFor();
});

test("allowed once, a command runs once and is asked about again", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await toolSession(server));
  await say(page, "!bash echo first");
  await button(asking(page), "Allow once").click();
  await reported(page, "first");
  await say(page, "!bash echo first");
  await asking(page).waitFor();
});

test("allowed for the session, a command is not asked about again in it", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await toolSession(server));
  await say(page, "!bash echo often");
  await button(asking(page), "For this session").click();
  await reported(page, "often");
  await say(page, "!bash echo often");
  await reported(page, "often", 2);
  assert.equal(await asking(page).count(), 0);
  const other = await openSession(server, await toolSession(server));
  await say(other, "!bash echo often");
  await asking(other).waitFor();
});

test("allowed always, a command is not asked about in another session of the project", async () => {
  const server = await sharedServer();
  const folder = join(server.folder, "project");
  await mkdir(folder);
  const page = await openSession(server, await toolSession(server, folder));
  await say(page, "!bash echo always");
  await button(asking(page), "Always in this project").click();
  await reported(page, "always");
  const other = await openSession(server, await toolSession(server, folder));
  await say(other, "!bash echo always");
  await reported(other, "always");
  assert.equal(await asking(other).count(), 0);
});

test("an answered call says who answered it, through which front and when, at once and after a reload", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await toolSession(server));
  await say(page, '!bash echo signed\n!question {"question": "Which way?", "options": ["left"]}');
  await button(asking(page), "Allow once").click();
  await asking(page).waitFor({ state: "detached" });
  await atRest(page);
  await button(page.getByRole("group", { name: "Which way?" }), "left").click();
  await reported(page, "signed");
  const shown = async (tool, line) => {
    const card = page.locator(`[data-tool=${tool}]`);
    await card.getByTitle(line).waitFor();
    const head = card.getByRole("button", { name: new RegExp(`^${tool}`) });
    if ((await head.getAttribute("aria-expanded")) !== "true") await head.click();
    await card.getByText(line).waitFor();
  };
  const answered = async () => {
    await shown("bash", /^Allowed by admin via web · \d\d:\d\d$/);
    await shown("question", /^Answered by admin via web · \d\d:\d\d$/);
  };
  await answered();
  await page.reload();
  await answered();
});

test("a denied call does not run, its reason is shown and told to the model", async () => {
  const server = await sharedServer();
  const id = await toolSession(server);
  const page = await openSession(server, id);
  await say(page, "!bash touch never");
  await button(asking(page), "Deny").click();
  await asking(page).getByLabel(/^Reason/).fill("use the <b>other</b> one");
  await page.keyboard.press("Enter");
  await page.getByText(denied("use the <b>other</b> one")).waitFor();
  await answers(page).getByText("bash denied: use the <b>other</b> one").waitFor();
  assert.ok(!(await readdir(server.folder)).includes("never"));
  await page.reload();
  await page.getByText(denied("use the <b>other</b> one")).waitFor();
});

test("an approval is still there after a reload and after a restart of the server", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await toolSession(server));
  await say(page, "!bash echo patient");
  await asking(page).waitFor();
  await page.reload();
  await asking(page).waitFor();
  // What was begun there is still there, too.
  await asking(page).getByRole("combobox").selectOption({ index: 1 });
  const picked = await asking(page).getByRole("combobox").inputValue();
  await button(asking(page), "Deny").click();
  await asking(page).getByLabel(/^Reason/).fill("not now");
  page.allow(AWAY);
  await server.restart();
  await hurry(page);
  assert.equal(await asking(page).getByLabel(/^Reason/).inputValue(), "not now");
  assert.equal(await asking(page).getByRole("combobox").inputValue(), picked);
  // What comes back with the connection moves the buttons, and a press on moving buttons is no answer.
  await atRest(page);
  await button(asking(page), "Allow once").click();
  await reported(page, "patient");
});

test("several calls wait side by side and each gets its own word", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await toolSession(server));
  await say(page, "!bash echo one\n!bash echo two");
  await asking(page).nth(1).waitFor();
  const one = asking(page).filter({ hasText: "echo one" });
  await button(one, "Allow once").click();
  await one.waitFor({ state: "detached" });
  const two = asking(page).filter({ hasText: "echo two" });
  // The list has moved, and a press right after that is not taken: people press again.
  await until(async () => {
    await button(two, "Deny").click();
    return two.getByLabel(/^Reason/).isVisible();
  }, "Deny takes no press");
  await page.keyboard.press("Enter");
  await answers(page).getByText(/bash .*: one\b/).waitFor();
  await answers(page).getByText(/bash denied/).waitFor();
});

test("an approval answered in another window or by a program shows here by itself", async () => {
  const server = await sharedServer();
  const id = await toolSession(server);
  const [page, other] = [await openSession(server, id), await openSession(server, id)];
  await say(page, "!bash echo elsewhere");
  await asking(page).waitFor();
  await button(asking(other), "Allow once").click();
  await reported(page, "elsewhere");
  await reported(other, "elsewhere");
  assert.equal(await asking(page).count(), 0);

  await say(other, "!bash echo program");
  await asking(page).waitFor();
  // What is asked is seen a moment before its run has ended to wait.
  const waiting = await until(async () => (await status(server, id)).waiting, "the status to name what waits");
  await server.call("POST", `/api/sessions/${id}/approvals/${waiting[0].approval_id}`, { decision: "deny", reason: "not today" });
  for (const window of [page, other]) {
    await window.getByText(denied("not today")).waitFor();
    await answers(window).getByText("bash denied: not today").waitFor();
    assert.equal(await asking(window).count(), 0);
  }
});

test("a reload after an approval goes on with the same text, without a gap and with nothing doubled", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/tour", { workspace_root: server.folder });
  const page = await openSession(server, id);
  await server.call("POST", `/api/sessions/${id}/prompt`, { text: "Run `seq 1 80`", model: SLOW_GUIDE });
  await button(asking(page), "Allow once").click();
  const numbers = Array.from({ length: 80 }, (_, index) => String(index + 1));
  for (const count of [3, 30]) {
    const before = await coded(page, count);
    await page.reload();
    const after = await coded(page, before.length);
    assertBegins(after, numbers, `after the reload at ${count}`);
    const { messages } = await server.call("GET", `/api/sessions/${id}/messages`);
    const stored = messages.at(-1).parts.findLast(({ type }) => type === "text").text;
    assert.ok(stored.includes(after.slice(0, -1).join("\n")), `what is shown after the reload at ${count} is stored`);
    assert.equal(await page.getByRole("button", { name: /^bash/ }).count(), 1);
  }
  assert.deepEqual(await coded(page, 80), numbers);
  assert.equal(await answers(page).count(), 1);
});

test("a question of the model is answered with one of its options", async () => {
  const server = await sharedServer();
  const id = await toolSession(server);
  const page = await openSession(server, id);
  await say(page, '!question {"question": "Which way, <i>left</i>?", "options": ["left", "right"]}');
  const group = page.getByRole("group", { name: "Which way, <i>left</i>?" });
  await group.waitFor();
  await page.reload();
  await group.waitFor();
  assert.equal(await page.locator("[data-tool=question]").getByText("Which way, <i>left</i>?").count(), 1);
  await button(group, "right").click();
  await answers(page).getByText(/^question .*: right/).waitFor();
  assert.equal(await group.count(), 0);
});

test("a question of the model is answered in one's own words, and the answer shows in every window", async () => {
  const server = await sharedServer();
  const id = await toolSession(server);
  const [page, other] = [await openSession(server, id), await openSession(server, id)];
  await say(page, '!question {"question": "What name?"}');
  const field = page.getByRole("textbox", { name: "Your own answer" });
  await field.fill("Ariadne");
  await other.getByRole("group", { name: "What name?" }).waitFor();
  await field.press("Enter");
  for (const window of [page, other]) await answers(window).getByText(/^question .*: Ariadne/).waitFor();
});

test("what is sent while something waits is queued, and is answered after it", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await toolSession(server));
  await say(page, "!bash echo now");
  await asking(page).waitFor();
  await say(page, "and then this");
  await page.getByRole("list", { name: "Queued messages" }).getByText("and then this").waitFor();
  // A press is ignored while what is pressed moves, and the queue has just moved it.
  await until(async () => {
    await button(asking(page), "Allow once").click({ timeout: 1000 }).catch(() => undefined);
    return (await asking(page).count()) === 0;
  }, "the press was never taken");
  await answers(page).getByText("and then this").waitFor();
  await page.getByRole("list", { name: "Queued messages" }).waitFor({ state: "detached" });
});

async function toolSession(server, folder = server.folder) {
  return (await newSession(server, "demo/tools", { workspace_root: folder })).id;
}

/** The line of a call that was denied here: who, through which front, when, and why. */
const denied = (reason) => new RegExp(`^Denied by admin via web · \\d\\d:\\d\\d · ${reason}$`);

/** Move the focus to the newest request, and wait until keys answer it. */
async function aim(page) {
  await button(asking(page), "Allow once").last().focus();
  await page.locator("[data-keys]").waitFor();
}

/** The model tells what the command said. */
async function reported(page, text, times = 1) {
  await until(async () => (await answers(page).getByText(new RegExp(`^bash \\w+: .*\\b${text}\\b`)).count()) >= times, `${text} was not reported`);
}

/** At least so many lines of the code block that is being written. The last one may not be whole yet. */
async function coded(page, count) {
  return until(async () => {
    const texts = await answers(page).last().getByRole("group", { name: "Code" }).allInnerTexts().catch(() => []);
    const lines = texts.join("\n").split("\n").filter((line) => /^\d+$/.test(line));
    return lines.length >= count && lines;
  }, `no ${count} lines came`);
}

test("an answer that is kept says how far it goes, and the wider one is asked about no more", async () => {
  const server = await sharedServer();
  const id = await toolSession(server);
  const page = await openSession(server, id);
  await say(page, "!bash echo one");
  const choice = asking(page).getByLabel("“Always allow” would cover");
  await choice.selectOption({ label: "every `echo one …`, whatever follows" });
  await aim(page);
  await page.keyboard.press("s");
  await page.keyboard.press("Enter");
  await reported(page, "one");
  await say(page, "!bash echo one two");
  await reported(page, "one two");
  assert.equal(await asking(page).count(), 0);
  const { rules } = await server.call("GET", `/api/rules?scope=session&session=${id}`);
  assert.deepEqual(rules.map((rule) => `${rule.permission} ${rule.pattern}`), ["bash echo one *"]);
});

test("each answer has its key, at a request that was gone to", async () => {
  const server = await sharedServer();
  const folder = join(server.folder, "keys");
  await mkdir(folder);
  const id = await toolSession(server, folder);
  const page = await openSession(server, id);
  const word = async (command, ...keys) => {
    await say(page, `!bash ${command}`);
    await asking(page).waitFor();
    await aim(page);
    for (const key of keys) await page.keyboard.press(key);
  };
  await word("echo yes", "y", "Enter");
  await reported(page, "yes");
  await word("echo kept", "s", "Enter");
  await reported(page, "kept");
  await word("echo always", "p", "Enter");
  await reported(page, "always");
  await word("echo never", "n", "Enter", "x", "Enter");
  await page.getByText(denied("x")).waitFor();
  await say(page, "!bash echo kept");
  await reported(page, "kept", 2);
});

test("of several that wait the focused one shows its keys, in sight, and is the one they answer", async () => {
  const server = await sharedServer();
  const id = await toolSession(server);
  const page = await openSession(server, id);
  await say(page, Array.from({ length: 7 }, (_, n) => `!bash echo number ${n}`).join("\n"));
  await asking(page).nth(6).waitFor();
  const waiting = async () => (await server.call("GET", `/api/sessions/${id}/status`)).waiting.map((one) => one.approval_id);
  const before = await waiting();
  const chosen = page.locator(`[data-request="${before[2]}"]`);
  await button(chosen, "Deny").focus();
  await page.locator("[data-keys]").waitFor();
  assert.equal(await page.locator("[data-keys]").getAttribute("data-request"), before[2]);
  // Scrolled out of sight it is answered by no key: it is shown first.
  await thread(page).evaluate((list) => list.scrollTo(0, list.scrollHeight));
  await page.locator("[data-keys]").waitFor({ state: "detached" });
  await page.keyboard.press("Enter");
  await page.locator("[data-keys]").waitFor();
  assert.deepEqual(await waiting(), before);
  await page.keyboard.press("y");
  await page.keyboard.press("Enter");
  await until(async () => (await waiting()).length === 6, "nothing was answered");
  assert.deepEqual(await waiting(), before.filter((one) => one !== before[2]));
});

test("a button of a request stays where it is when a press on it brings the keys into sight", async () => {
  const server = await sharedServer();
  const id = await toolSession(server);
  const page = await openSession(server, id);
  await page.getByRole("textbox", { name: "Message", exact: true }).fill("going on");
  await server.call("POST", `/api/sessions/${id}/prompt`, { text: "!bash echo pressed" });
  await asking(page).waitFor();
  await until(() => button(asking(page), "Deny").isEnabled(), "it takes no press");
  const places = () => asking(page).getByRole("button").evaluateAll((all) => all.map((one) => one.getBoundingClientRect().toJSON()));
  assert.equal(await page.locator("[data-keys]").count(), 0);
  const before = await places();
  await page.getByRole("button", { name: "Deny", exact: true }).hover();
  await page.mouse.down();
  await page.locator("[data-keys]").waitFor();
  assert.deepEqual(await places(), before);
  await page.mouse.up();
  await asking(page).getByLabel(/^Reason/).waitFor();
});

test("all that waits is answered at once", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await toolSession(server));
  await say(page, "!bash echo one\n!bash echo two\n!bash echo three");
  await asking(page).nth(2).waitFor();
  await button(asking(page).last(), "Allow all 3 once").click();
  await answers(page).getByText(/: one\b[^]*: two\b[^]*: three\b/).first().waitFor();
  assert.equal(await asking(page).count(), 0);
});

test("the mode is in sight and changes what is asked", async () => {
  const server = await sharedServer();
  const folder = join(server.folder, "accepted");
  await mkdir(folder);
  const page = await openSession(server, await toolSession(server, folder));
  const mode = page.getByRole("form", { name: "Write a message" }).getByLabel("Mode", { exact: true });
  assert.equal(await mode.inputValue(), "ask");
  await say(page, "!write a.txt one");
  await page.getByRole("group", { name: "Approve this write call?" }).waitFor();
  await mode.selectOption("accept_edits");
  await until(async () => (await readdir(folder)).includes("a.txt"));
  await mode.selectOption("read_only");
  await say(page, "!write b.txt two");
  await answers(page).getByText(/this session only reads/).waitFor();
  assert.deepEqual(await readdir(folder), ["a.txt"]);
});

test("a rule given by mistake is found, explained and revoked in the inspector", async () => {
  const server = await sharedServer();
  const folder = join(server.folder, "revoked");
  await mkdir(folder);
  const page = await openSession(server, await toolSession(server, folder));
  await say(page, "!bash echo mistake");
  await button(asking(page), "Always in this project").click();
  await reported(page, "mistake");
  await page.keyboard.press("Control+i");
  await page.getByRole("tab", { name: "Rules" }).click();
  const panel = page.getByRole("tabpanel", { name: "Rules" });
  await panel.getByRole("region", { name: "This project" }).getByText("bash echo mistake").waitFor();
  await panel.getByLabel("Target to test").fill("echo mistake");
  await button(panel, "Explain").click();
  await panel.getByText("the project rule `bash echo mistake` allows it").waitFor();
  await panel.getByRole("button", { name: "Revoke allow bash echo mistake" }).click();
  await panel.getByText("no rule covers it").waitFor();
  await panel.getByRole("form", { name: "Add a rule" }).getByLabel("Pattern").fill("echo *");
  await button(panel, "Add").click();
  await panel.getByRole("region", { name: "This session" }).getByText("bash echo *").waitFor();
  await say(page, "!bash echo mistake");
  await reported(page, "mistake", 2);
  page.allow(/422/);
  // A capability is shown in plain words, and a name that is neither a tool nor a capability is refused with the list.
  const form = panel.getByRole("form", { name: "Add a rule" });
  await form.getByLabel("Action").selectOption("deny");
  await form.getByLabel("Tool").fill("fs.wirte");
  await form.getByLabel("Pattern").fill("*");
  await button(form, "Add").click();
  await panel.getByRole("alert").getByText(/unknown permission 'fs.wirte'; use one of .*fs\.write/i).waitFor();
  await form.getByLabel("Tool").fill("fs.write");
  await button(form, "Add").click();
  await panel.getByRole("region", { name: "This session" }).getByText("fs.write * (change files)").waitFor();
  await say(page, "!write a.txt one");
  await answers(page).getByText(/write failed: denied/).waitFor();
});

test("a command shows what it prints while it runs", async () => {
  const server = await sharedServer();
  const folder = join(server.folder, "printing");
  await mkdir(folder);
  const id = await toolSession(server, folder);
  await server.call("POST", "/api/rules", { scope: "session", session: id, permission: "bash", pattern: "*", action: "allow" });
  const [page, other] = [await openSession(server, id), await openSession(server, id)];
  await say(page, "!bash echo '<b>begun</b>'; until [ -e go ]; do sleep 0.1; done; echo ended");
  for (const viewer of [page, other]) await viewer.getByRole("log", { name: "Output of bash so far" }).getByText("<b>begun</b>").waitFor();
  await other.reload();
  await other.getByRole("log", { name: "Output of bash so far" }).getByText("<b>begun</b>").waitFor();
  await writeFile(join(folder, "go"), "");
  await page.getByRole("log", { name: "Output of bash so far" }).waitFor({ state: "detached" });
  await answers(page).getByText(/ended \[exit code 0\]/).waitFor();
});

test("the plan of an answer is a checklist", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await toolSession(server));
  const items = [
    { text: "read <b>it</b>", status: "completed" },
    { text: "write it", status: "in_progress" },
    { text: "test it", status: "pending" },
  ];
  await say(page, `!todo ${JSON.stringify({ items })}`);
  const list = page.getByRole("list", { name: "To do" });
  await list.waitFor();
  assert.deepEqual(await list.getByRole("listitem").allInnerTexts().then((texts) => texts.map((text) => text.replace(/\s+/g, " ").trim())), [
    "✓ read <b>it</b> (done)",
    "▸ write it (in progress)",
    "○ test it (to do)",
  ]);
});
