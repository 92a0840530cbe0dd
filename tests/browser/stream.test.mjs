/** The token, the first visit, and an answer while it is written: reloads, stops, failures. */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { newContext, openPage, startServer, test } from "./kit.mjs";
import {
  agrees,
  answers,
  assertBegins,
  atLeast,
  button,
  completed,
  composer,
  drawn,
  idle,
  newSession,
  newestEnd,
  noteDrawings,
  openSession,
  own,
  say,
  status,
  storedWords,
  typed,
  until,
} from "./talk.mjs";

let shared;
/** So many words that only a stop ends it. */
const ENDLESS = "100000";
const sharedServer = () => (shared ??= startServer({ shared: true }));

/** The same with nothing in its store. */
async function emptyServer() {
  const server = await sharedServer();
  const { sessions } = await server.call("GET", "/api/sessions");
  for (const { id } of sessions) await server.call("DELETE", `/api/sessions/${id}?force=true`);
  return server;
}

test("the token is taken from the address once, kept, and gone from the address", async () => {
  const server = await sharedServer();
  const page = await openPage(server);
  await button(page, "New session").first().waitFor();
  assert.equal(page.url(), `${server.url}/`);
  await page.goto(server.url);
  await button(page, "New session").first().waitFor();
  await page.goBack();
  assert.ok(!page.url().includes(server.token), "Back must not lead to the token");
});

test("a page without a token shows a field for it and the command that prints the address", async () => {
  const server = await sharedServer();
  const page = await openPage(server, { path: "/" });
  await page.getByText("clew url", { exact: true }).waitFor();
  await page.getByLabel("Token or address").fill(server.token);
  await button(page, "Open").click();
  await button(page, "New session").first().waitFor();
  await page.reload();
  await button(page, "New session").first().waitFor();
});

test("the whole address may be pasted in the place of the token", async () => {
  const server = await sharedServer();
  const page = await openPage(server, { path: "/" });
  await page.getByLabel("Token or address").fill(`clew ${server.address}\n`);
  await page.keyboard.press("Enter");
  await button(page, "New session").first().waitFor();
});

test("a wrong token is refused in words, is not kept, and another can be given", async () => {
  const server = await sharedServer();
  const page = await openPage(server, { path: "/#token=this-is-not-the-token" });
  page.allow(/401/);
  await page.getByText("This token is no longer valid").waitFor();
  assert.ok(!page.url().includes("token"), page.url());
  await page.reload();
  await page.getByText("This page needs the server’s token.").waitFor();
  await page.getByLabel("Token or address").fill("wrong again");
  await button(page, "Open").click();
  await page.getByText("This token is no longer valid").waitFor();
  await page.getByLabel("Token or address").fill(server.address);
  await button(page, "Open").click();
  await button(page, "New session").first().waitFor();
});

test("on a first visit without a key the demo model answers at once and a line says how to add a provider", async () => {
  const server = await emptyServer();
  const page = await openPage(server);
  await page.getByText("The demo model answers without a key.").waitFor();
  await page.getByText("ANTHROPIC_API_KEY").waitFor();
  await page.getByText("Model: demo/tour").waitFor();
  // Another one that is picked is what answers, and is asked what it can do.
  for (const [name, ask] of [["demo/tools", "!ls"], ["demo/tour", "What is clew?"]]) {
    await composer(page).fill(`/model ${name}`);
    await composer(page).press("Enter");
    await page.getByText(`Model: ${name}`).waitFor();
    await page.getByRole("button", { name: ask }).waitFor();
  }
  await page.getByRole("button", { name: /What is clew\?/ }).click();
  await typed(page, "What is clew?");
  await composer(page).press("Enter");
  await answers(page).getByRole("heading", { name: "clew", exact: true }).waitFor();
  await answers(page).getByText("ball of thread").waitFor();
});

test("an empty store offers examples, and loads them", async () => {
  const server = await emptyServer();
  const page = await openPage(server);
  await button(page, "Load examples").click();
  await page.getByRole("complementary", { name: "Sessions" }).getByText("Sample:").nth(3).waitFor();
  await composer(page).waitFor();
  await until(async () => (await server.call("GET", "/api/sessions")).sessions.length >= 5, "not all of the examples came");
  await page.goto(`${server.url}/#/`);
  await page.getByText("What next?").waitFor();
  assert.equal(await button(page, "Load examples").count(), 0);
});

test("what is sent is shown at once, its answer is drawn while it is written, and is the stored one word for word", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/long");
  const context = await newContext();
  await noteDrawings(context);
  const page = await openSession(server, id, { context });
  await slowly(page);
  await say(page, ENDLESS);
  await own(page).getByText(ENDLESS).waitFor();
  assert.equal(await composer(page).inputValue(), "");
  await button(page, "Stop").waitFor();
  assertBegins(await atLeast(page, 5), await storedWords(server, id), "while it is written");
  await until(async () => (await drawn(page)).length > 5, "it is not drawn while it is written");
  await button(page, "Stop").click();
  const whole = await stopped(server, page, id);
  const seen = await drawn(page);
  seen.forEach((words, index) => assertBegins(words, whole, `drawing ${index}`));
  await button(page, "Send").waitFor();
});

test("a reload while it is written goes on with the same text, without a gap and with nothing doubled", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/long");
  const context = await newContext();
  await noteDrawings(context);
  const page = await openSession(server, id, { context });
  await slowly(page);
  await say(page, ENDLESS);
  const lives = [];
  for (const count of [3, 30, 60]) {
    const before = await atLeast(page, count);
    lives.push(await drawn(page));
    await page.reload();
    const after = await atLeast(page, before.length);
    assertBegins(before, after, `after the reload at ${count}`);
    assertBegins(after, await storedWords(server, id), `what is shown after the reload at ${count} is stored`);
    await button(page, "Stop").waitFor();
  }
  await until(async () => (await drawn(page)).length > 3, "it is not drawn while it is written, after the last reload");
  await button(page, "Stop").click();
  const whole = await stopped(server, page, id);
  lives.push(await drawn(page));
  for (const [life, texts] of lives.entries()) {
    for (const [index, words] of texts.entries()) {
      assertBegins(words, whole, `drawing ${index} after ${life} reloads`);
      assert.ok(words.length >= (texts[index - 1]?.length ?? 0), `drawing ${index} after ${life} reloads has less than the one before`);
    }
  }
  assert.equal(await answers(page).count(), 1);
  assert.equal(await own(page).count(), 1);
});

test("closing the tab does not stop the run", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/long");
  const context = await newContext();
  const page = await openSession(server, id, { context });
  await slowly(page);
  await say(page, ENDLESS);
  const before = await atLeast(page, 3);
  await page.close();
  await until(async () => (await storedWords(server, id)).length > before.length + 5, "the run stopped");
  const again = await openSession(server, id, { context });
  await button(again, "Stop").click();
  assertBegins(before, await stopped(server, again, id), "after it was opened again");
});

test("Stop stops the run, says so, and Continue goes on", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/long");
  const page = await openSession(server, id);
  await slowly(page);
  await say(page, ENDLESS);
  await atLeast(page, 3);
  await button(page, "Stop").click();
  await stopped(server, page, id);
  await page.reload();
  await newestEnd(page).getByText("Stopped.", { exact: true }).waitFor();
  await button(page, "Continue").click();
  await until(async () => (await status(server, id)).state === "busy", "it did not go on");
  await button(page, "Stop").click();
  await idle(server, id);
  await button(page, "Continue").waitFor();
  assert.equal(await own(page).count(), 1);
});

test("Esc stops the run, from the field and from anywhere in the conversation", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/long");
  const page = await openSession(server, id);
  await slowly(page);
  await say(page, ENDLESS);
  await atLeast(page, 2);
  await composer(page).press("Escape");
  await idle(server, id);
  await slowly(page);
  await say(page, ENDLESS);
  await until(async () => (await answers(page).count()) === 2, "no second answer");
  await atLeast(page, 2);
  await page.getByRole("region", { name: "Messages" }).focus();
  await page.keyboard.press("Escape");
  await idle(server, id);
  await newestEnd(page).getByText("Stopped.", { exact: true }).waitFor();
});

test("a refused key is told in plain words, and Try again tries again", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/fail");
  const page = await openSession(server, id);
  await page.evaluate(() => {
    window.alerts = 0;
    const drawn = (node) => node instanceof Element && (window.alerts += Number(node.matches('[role="alert"]')) + node.querySelectorAll('[role="alert"]').length);
    new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach(drawn))).observe(document.querySelector("main"), { childList: true, subtree: true });
  });
  await say(page, "401");
  const told = page.getByRole("alert").filter({ hasText: "demo refused the key. Check the key and its permissions, or choose another model." });
  assert.equal(await told.getByText("the key is not valid").isVisible(), false);
  await told.getByText("Details").click();
  await told.getByText("401: the key is not valid").waitFor();
  // What was read is told in the place where it was told at once, and nothing that was opened is closed by it.
  await idle(server, id);
  await button(page, "Inspect turn").waitFor();
  await told.getByText("401: the key is not valid").waitFor();
  assert.equal(await page.evaluate(() => window.alerts), 1);
  await page.reload();
  await told.waitFor();
  const { messages: before } = await server.call("GET", `/api/sessions/${id}/messages`);
  await button(page, "Try again").click();
  await until(async () => (await server.call("GET", `/api/sessions/${id}/messages`)).messages.length > before.length, "it was not tried again");
  await told.waitFor();
  assert.equal(await own(page).count(), 1);
});

test("a provider that breaks for a while is tried again with a countdown, and then answers", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/fail");
  const page = await openSession(server, id);
  // The next attempt is so far away that nobody is too slow to see the seconds.
  await say(page, "500 1 100");
  await page.getByText(/^demo has an outage or an internal error\. Retrying in \d+ s, attempt 2$/).waitFor();
  await page.getByRole("main").getByRole("status").getByText(/^Retrying, attempt 2/).waitFor();
  await page.getByRole("main").getByText(/^in \d+ s$/).waitFor();
  await button(page, "Stop").click();
  await idle(server, id);
  await button(page, "Send").waitFor();
  await say(page, "500 2");
  await answers(page).getByText("500 2").waitFor();
  await button(page, "Send").waitFor();
  await until(async () => (await page.getByText(/Retrying/).count()) === 0, "it is still said to be retrying");
});

test("a retry that began before the events were connected, or while they were not, is shown", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/fail");
  const page = await openPage(server);
  await page.waitForURL(`${server.url}/`);
  let connect;
  const connected = new Promise((resolve) => (connect = resolve));
  await page.route("**/api/events*", async (route) => {
    await connected;
    await route.continue();
  });
  await page.goto(`${server.url}/#/s/${id}`);
  await page.reload();
  await composer(page).waitFor();
  await say(page, "500 1 100");
  await until(async () => (await status(server, id)).state === "retrying", "it is not retrying");
  connect();
  await page.getByText(/^demo has an outage or an internal error\. Retrying in \d+ s, attempt 2$/).waitFor();
});

test("a turn that stopped at its step limit offers to continue, and does", async () => {
  const server = await sharedServer();
  const agents = join(server.folder, "config", "clew", "agents");
  await mkdir(agents, { recursive: true });
  await writeFile(join(agents, "brief.md"), "---\nname: brief\ndescription: One step.\nmode: primary\nmax_steps: 1\nrules:\n  - permission: ls\n    pattern: \"./**\"\n    action: allow\n---\nBe brief.\n");
  const { id } = await newSession(server, "demo/tools", { agent: "brief", workspace_root: server.folder });
  const page = await openSession(server, id);
  await say(page, "!ls .");
  await page.getByText("Stopped at the step limit (1).").waitFor();
  await button(page, "Continue").click();
  await answers(page).getByText(/^ls .*: /).waitFor();
  await page.getByText("Stopped at the step limit (1).").waitFor({ state: "detached" });
  assert.equal(await own(page).count(), 1);
});

test("another model can be picked for the next message", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/echo");
  const page = await openSession(server, id);
  await button(page, "Model: demo/echo").click();
  await page.getByRole("combobox", { name: "Find a model" }).fill("long");
  await page.getByRole("option", { name: /demo\/long/ }).click();
  await button(page, "Model: demo/long").waitFor();
  await page.reload();
  await button(page, "Model: demo/long").waitFor();
  await say(page, "12");
  await completed(server, page, id, 12);
  const { messages } = await server.call("GET", `/api/sessions/${id}/messages`);
  assert.deepEqual(messages.at(-1).metadata.model, { provider_id: "demo", model_id: "long" });
});

/** Waits until the answer says that it was stopped, with exactly the words that are stored. */
async function stopped(server, page, id) {
  await newestEnd(page).getByText("Stopped.", { exact: true }).waitFor();
  await idle(server, id);
  const stored = await storedWords(server, id);
  await agrees(page, stored);
  return stored;
}

/** The next answer takes its time. */
async function slowly(page) {
  await page.getByRole("button", { name: /^Model: / }).click();
  await page.getByRole("dialog", { name: "Model for the next message" }).getByRole("button", { name: "slow", exact: true }).click();
  await page.getByRole("button", { name: /^Model: .*:slow$/ }).waitFor();
}
