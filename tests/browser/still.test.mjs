/** What stands still: nothing is moved, taken away or drawn anew under a press, or between two keys. */
import assert from "node:assert/strict";
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { openPage, startServer, test } from "./kit.mjs";
import { answers, button, composer, idle, newSession, openSession, say, until } from "./talk.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));
const prompt = (server, id, text, more = {}) => server.call("POST", `/api/sessions/${id}/prompt`, { text, ...more });
const SLOW = { model: { provider_id: "demo", model_id: "long", variant: "slow" } };

/** The page's requests that `window.held` matches are answered when `window.letGo()` is called. */
function holdRequests() {
  const real = window.fetch;
  const letGo = new Promise((resolve) => (window.letGo = resolve));
  window.fetch = async (input, init) => {
    const asked = `${init?.method ?? input.method ?? "GET"} ${new URL(String(input.url ?? input), location.href).pathname}`;
    if (window.held?.test(asked)) {
      window.asked = asked;
      await letGo;
    }
    return real(input, init);
  };
}

/** What can be pressed now in the conversation; and later which of it was moved or taken away. */
async function watchPlaces(page) {
  await page.evaluate(() => {
    const where = (one) => (one.isConnected ? JSON.stringify(one.getBoundingClientRect()) : "gone");
    const nameOf = (one) => one.ariaLabel ?? one.textContent.trim();
    const all = [...document.querySelectorAll("main button, main select, main textarea")].filter((one) => one.checkVisibility());
    // A name that grows in its place does not move.
    const placeOf = (one) => (one.isConnected ? JSON.stringify([one.getBoundingClientRect().left, one.getBoundingClientRect().top]) : "gone");
    const before = all.map((one) => [one, nameOf(one), placeOf(one), where(one)]);
    window.moved = () => before.filter(([one, , place]) => placeOf(one) !== place).map(([one, name, , rect]) => `${name}: ${rect} → ${where(one)}`);
    window.watched = before.map(([, name]) => name);
  });
  return { moved: () => page.evaluate(() => window.moved()), names: await page.evaluate(() => window.watched) };
}

async function press(page, target) {
  await target.hover();
  await page.mouse.down();
}

test("nothing that can be pressed moves while a session is being read", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/echo", { mode: "read_only", workspace_root: server.folder });
  const page = await openPage(server, { before: holdRequests });
  await page.waitForURL(`${server.url}/`);
  await page.evaluate((held) => (window.held = new RegExp(held)), `^GET /api/sessions/${id}(/|$)`);
  await page.evaluate((hash) => (location.hash = hash), `#/s/${id}`);
  await button(page, "Compact now").waitFor();
  const { moved, names } = await watchPlaces(page);
  assert.ok(names.includes("Send") && names.some((name) => name.startsWith("Model")), names.join());
  await page.evaluate(() => window.letGo());
  await page.getByRole("combobox", { name: "Mode" }).and(page.locator("[title='Nothing is changed, even if a rule allows it']")).waitFor();
  await page.getByRole("button", { name: "Model: demo/echo" }).waitFor();
  await page.getByRole("button", { name: /^Context\./ }).waitFor();
  assert.deepEqual(await moved(), []);
});

test("the buttons of an answer stay where they are when the models are known", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/echo");
  await prompt(server, id, "one");
  await idle(server, id);
  const page = await openPage(server, { before: `(${holdRequests})(); window.held = /^GET .api.models$/;` });
  await page.waitForURL(`${server.url}/`);
  await page.goto(`${server.url}/#/s/${id}`);
  await button(page, "Inspect turn").waitFor();
  const other = button(page, "Ask another model");
  assert.equal(await other.isDisabled(), true);
  const { moved } = await watchPlaces(page);
  await page.evaluate(() => window.letGo());
  await until(() => other.isEnabled(), "no other model");
  assert.deepEqual(await moved(), []);
});

test("a press on a button of the newest answer counts also where a turn begins elsewhere meanwhile", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/echo");
  const page = await openSession(server, id, { before: holdRequests });
  await say(page, "one");
  await button(page, "Inspect turn").waitFor();
  await idle(server, id);
  await button(page, "Send").waitFor();
  // Word of the turn comes, and its messages do not yet.
  await page.evaluate((held) => (window.held = new RegExp(held)), `^GET /api/sessions/${id}/messages$`);
  await press(page, button(answers(page), "Inspect turn"));
  await prompt(server, id, "100000", SLOW);
  await until(() => page.evaluate(() => "asked" in window), "nothing new is read");
  await button(page, "Stop").waitFor();
  await page.evaluate(() => window.letGo());
  await answers(page).nth(1).waitFor();
  await page.mouse.up();
  await page.getByRole("complementary", { name: "Inspector" }).waitFor();
  await server.call("POST", `/api/sessions/${id}/abort`);
});

test("a press that pauses the queue counts also where a message leaves it meanwhile", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/long");
  await prompt(server, id, "100000", SLOW);
  const queued = [];
  for (const text of ["one", "two", "three"]) queued.push((await prompt(server, id, text, { on_busy: "queue" })).message_id);
  const page = await openSession(server, id);
  const waiting = page.getByRole("list", { name: "Queued messages" }).getByRole("listitem");
  await waiting.nth(2).waitFor();
  await press(page, button(page, "Pause queue"));
  await server.call("DELETE", `/api/sessions/${id}/queue/${queued[0]}`);
  await until(async () => (await waiting.count()) === 2, "it is still there");
  await page.mouse.up();
  await page.getByText("· paused").waitFor();
  // And the way back is under the pointer.
  await page.mouse.down();
  await page.mouse.up();
  await page.getByText("· paused").waitFor({ state: "detached" });
  await server.call("POST", `/api/sessions/${id}/abort`);
});

test("who types on while a session is made for what they said goes on in it, to the key", async () => {
  const server = await sharedServer();
  const page = await openPage(server, { before: `(${holdRequests})(); window.held = /^POST .api.sessions$/;` });
  await page.getByRole("button", { name: /^Model: demo\// }).waitFor();
  await composer(page).fill("hello");
  await page.keyboard.press("Enter");
  await until(() => page.evaluate(() => "asked" in window), "no session is made");
  await page.keyboard.type("and");
  await page.evaluate(() => window.letGo());
  await page.keyboard.type(" on and on and on and on and on and on");
  await answers(page).waitFor();
  assert.equal(await composer(page).inputValue(), "and on and on and on and on and on and on");
  await page.goto(`${server.url}/#/`);
  await page.getByRole("main", { name: "New conversation" }).waitFor();
  assert.equal(await composer(page).inputValue(), "");
});

test("what is sent after another mode was picked is never done in the one before", async () => {
  const server = await sharedServer();
  const folder = join(server.folder, "read only");
  await mkdir(folder);
  const { id } = await newSession(server, "demo/tools", { workspace_root: folder, mode: "accept_edits" });
  const page = await openSession(server, id, { before: holdRequests });
  const mode = page.getByRole("combobox", { name: "Mode" });
  await mode.waitFor();
  await page.evaluate((held) => (window.held = new RegExp(held)), `^PATCH /api/sessions/${id}$`);
  await mode.selectOption("read_only");
  assert.equal(await mode.inputValue(), "read_only");
  await say(page, "!write a.txt one");
  await until(() => page.evaluate(() => "asked" in window), "no mode was asked for");
  await page.evaluate(() => window.letGo());
  await answers(page).getByText(/this session only reads/).waitFor();
  assert.deepEqual(await readdir(folder), []);
});
