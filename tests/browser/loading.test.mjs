/** What a session shows before its messages are there, and when they cannot be read; and menus that nothing cuts off. */
import assert from "node:assert/strict";
import { openPage, startServer, test } from "./kit.mjs";
import { AWAY, answers, button, idle, newSession, openSession, until } from "./talk.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));
const MESSAGES = /\/api\/sessions\/[\w-]+\/messages/;
const skeleton = (page) => page.getByRole("status", { name: "Loading messages" });
const failed = (page) => page.getByRole("alert").filter({ hasText: "Could not load this session" });
const prompt = (server, id, text, more = {}) => server.call("POST", `/api/sessions/${id}/prompt`, { text, ...more });

async function told(server) {
  const { id } = await newSession(server, "demo/echo");
  await prompt(server, id, "told before");
  await idle(server, id);
  return id;
}

test("a session shows a skeleton while it loads", async () => {
  const server = await sharedServer();
  const id = await told(server);
  const page = await openPage(server);
  let letGo;
  const held = new Promise((resolve) => (letGo = resolve));
  await page.route(MESSAGES, async (route) => {
    await held;
    await route.continue();
  });
  await page.evaluate((hash) => (location.hash = hash), `#/s/${id}`);
  await skeleton(page).waitFor();
  letGo();
  await answers(page).getByText("told before").waitFor();
  assert.equal(await skeleton(page).count(), 0);
});

test("a session that could not be read says so, is read again by a press, and by itself", async () => {
  const server = await sharedServer();
  const id = await told(server);
  const page = await openPage(server);
  page.allow(AWAY);
  // The first connection opens again what has failed until then.
  await page.getByText("Connected").waitFor({ state: "attached" });
  // An answer that trying again does not change: nothing happens before it is pressed.
  let asked = 0;
  const refuse = (route) => {
    asked += 1;
    return route.fulfill({ status: 403, contentType: "application/problem+json", body: JSON.stringify({ code: "forbidden", detail: "not now", status: 403 }) });
  };
  await page.route(MESSAGES, refuse);
  await page.evaluate((hash) => (location.hash = hash), `#/s/${id}`);
  await failed(page).waitFor();
  await button(page, "Retry").click();
  await until(() => asked === 2, "it was not asked for again");
  await failed(page).waitFor();
  await page.unroute(MESSAGES, refuse);
  await button(page, "Retry").click();
  await answers(page).getByText("told before").waitFor();
  assert.equal(await failed(page).count(), 0);

  // A connection that breaks passes by itself.
  for (const breaks of [(route) => route.abort(), (route) => route.fulfill({ status: 503, body: "" })]) {
    await page.evaluate(() => (location.hash = "#/"));
    await page.getByRole("main", { name: "New conversation" }).waitFor();
    await page.route(MESSAGES, breaks);
    await page.evaluate((hash) => (location.hash = hash), `#/s/${id}`);
    await failed(page).waitFor();
    await page.unroute(MESSAGES, breaks);
    await answers(page).getByText("told before").waitFor();
    assert.equal(await failed(page).count(), 0);
  }
});

test("an event of a session that could not be read adds no second error, and none is left once it is read", async () => {
  const server = await sharedServer();
  const id = await told(server);
  const page = await openPage(server);
  await page.getByText("Connected").waitFor({ state: "attached" });
  page.allow(AWAY);
  let asked = 0;
  const refuse = (route) => {
    asked += 1;
    return route.fulfill({ status: 403, contentType: "application/problem+json", body: JSON.stringify({ code: "forbidden", detail: "not now", status: 403 }) });
  };
  await page.route(MESSAGES, refuse);
  await page.evaluate((hash) => (location.hash = hash), `#/s/${id}`);
  await failed(page).waitFor();
  await server.call("PATCH", `/api/sessions/${id}`, { title: "Renamed elsewhere" });
  await until(() => asked >= 2, "the event was not followed by a read");
  await page.unroute(MESSAGES, refuse);
  await button(page, "Retry").click();
  await answers(page).getByText("told before").waitFor();
  assert.deepEqual(await page.getByRole("alert").allInnerTexts(), []);
});

test("a session that was opened while the server was away is there when it is back", async () => {
  const server = await startServer();
  const id = await told(server);
  const page = await openPage(server);
  await page.getByText("Connected").waitFor({ state: "attached" });
  page.allow(AWAY);
  await server.kill9();
  await page.evaluate((hash) => (location.hash = hash), `#/s/${id}`);
  await failed(page).getByText("The server cannot be reached.").waitFor();
  await server.start();
  await answers(page).getByText("told before").waitFor();
  assert.equal(await failed(page).count(), 0);
});

/** Whether each of its entries is what a press at it would reach. */
const reachable = (menu) =>
  menu.getByRole("menuitem").evaluateAll((all) =>
    all.map((one) => {
      const { left, top, width, height } = one.getBoundingClientRect();
      return one.contains(document.elementFromPoint(left + width / 2, top + height / 2));
    }),
  );

test("the menu of a queued message is cut off by nothing, and sends it now", async () => {
  const server = await sharedServer();
  for (const options of [{}, { width: 390, height: 844, touch: true }]) {
    const { id } = await newSession(server, "demo/long");
    await prompt(server, id, "100000", { model: { provider_id: "demo", model_id: "long", variant: "slow" } });
    for (const text of ["1", "2", "3"]) await prompt(server, id, text, { on_busy: "queue" });
    const page = await openSession(server, id, options);
    for (const text of ["1", "2", "3"]) {
      await button(page, `Actions for queued message: ${text}`).click();
      const menu = page.getByRole("menu", { name: `Actions for queued message: ${text}` });
      await menu.waitFor();
      assert.deepEqual(await reachable(menu), [true, true, true, true], `${text} at ${options.width ?? "full"}`);
      await page.keyboard.press("Escape");
      await menu.waitFor({ state: "detached" });
    }
    await button(page, "Actions for queued message: 2").click();
    const entry = page.getByRole("menuitem", { name: "Send now" });
    const { x, y, width, height } = await entry.boundingBox();
    await page.mouse.click(x + width / 2, y + height / 2);
    await page.getByRole("article", { name: "You" }).getByText("2", { exact: true }).waitFor();
    await server.call("POST", `/api/sessions/${id}/abort`).catch(() => undefined);
  }
});

test("the menu of a session at the end of the list, and of a message, is cut off by nothing", async () => {
  const server = await startServer();
  for (let number = 0; number < 20; number += 1) await newSession(server, "demo/echo", { title: `Session ${number}` });
  const { id } = await newSession(server, "demo/echo", { title: "Session open" });
  await prompt(server, id, "one");
  await idle(server, id);
  const page = await openSession(server, id, { height: 500 });
  const rows = page.getByRole("list", { name: "Session list" }).locator("li[data-row]");
  await rows.nth(20).waitFor();
  for (const at of [0, 5, 20]) {
    await rows.nth(at).scrollIntoViewIfNeeded();
    await rows.nth(at).hover();
    await rows.nth(at).getByRole("button", { name: /^Actions for/ }).click();
    assert.deepEqual(await reachable(page.getByRole("menu")), Array(5).fill(true), `row ${at}`);
    await page.keyboard.press("Escape");
  }
  await answers(page).getByRole("button", { name: "Ask another model" }).click();
  const models = page.getByRole("menu").getByRole("menuitem");
  await models.first().waitFor();
  assert.equal((await reachable(page.getByRole("menu")))[0], true);
});
