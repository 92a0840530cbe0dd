/** Above the conversation and right of it: the gauge, the sidecar, and the inspector's tabs. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { audit, startServer, test } from "./kit.mjs";
import { banner, becomes, begin, composer, goTo, openId, openSession, pane, rests, row, say, send, shown, stored, textOf, thread, told, until } from "./session.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));
/** Room for the list, two conversations and the inspector. */
const WIDE = { width: 1800, height: 1000 };
const inspector = (page) => page.getByRole("complementary", { name: "Inspector" });
/** Whether what is given the focus has it some frames later. */
const keepsFocus = async (locator) => {
  await locator.focus();
  const frames = () => new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 100));
  await locator.page().evaluate(frames);
  return locator.evaluate((node) => node === document.activeElement);
};
const grouped = (number) => number.toLocaleString("en");

async function inspect(page, tab) {
  if ((await inspector(page).count()) === 0) await page.keyboard.press("Control+i");
  await inspector(page).getByRole("tab", { name: tab }).click();
  await inspector(page).getByRole("tab", { name: tab, selected: true }).waitFor();
}

const report = (server, id) => server.call("GET", `/api/sessions/${id}/context`);
const tree = (server, id) => server.call("GET", `/api/sessions/${id}/tree`);
const turnOf = (server, id) => stored(server, id).then((all) => all.at(-1).metadata.turn_id);

test("the gauge tells what the server says of the context, an estimate as such, with the threshold drawn", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Gauged" });
  const page = await openSession(server, id, WIDE);
  const gauge = pane(page).getByRole("button", { name: /^Context\./ });
  const details = pane(page).getByRole("region", { name: "Context breakdown" });
  await gauge.click();
  for (const turn of [null, "one", "two words and a few more"]) {
    if (turn !== null) {
      await send(page, turn);
      await until(async () => told(await stored(server, id)).some(([who, text]) => who === "Assistant" && text === turn), "an answer");
      await rests(server, id);
    }
    const context = await report(server, id);
    assert.equal(context.measured, turn !== null);
    const about = context.measured ? "" : "About ";
    const percent = Math.round((context.used / context.limit) * 100);
    await becomes(() => details.getByRole("paragraph").first().innerText(), `${about}${grouped(context.used)} of ${grouped(context.limit)} tokens, ${percent}%`);
    assert.match(await gauge.innerText(), context.measured ? /^Context\.\s+[\d.]+k? of 8k/ : /^Context\.\s+about [\d.]+k? of 8k/);
    assert.match(await details.innerText(), context.measured ? /Reported by the provider\./ : /Estimated until the provider reports usage\./);
    const figures = await details.locator("dl > div").evaluateAll((all) => all.map((one) => [one.querySelector("dt").innerText.trim(), one.querySelector("dd").innerText]));
    const { parts, reserve, threshold } = context;
    const expected = {
      "System prompt": parts.system,
      Tools: parts.tools,
      Summary: parts.summary,
      Conversation: parts.history,
      "Saved by pruning": parts.pruned,
      "Reserved for the answer": reserve,
      "Auto-compacts at": threshold,
    };
    assert.deepEqual(figures, Object.entries(expected).map(([name, value]) => [name, grouped(value)]));
    // The mark stands where summarising begins, and the colours take the share that is used.
    const drawn = await gauge.evaluate((button) => {
      const bar = button.querySelector('[aria-hidden="true"]');
      const whole = bar.getBoundingClientRect();
      const [fill, mark] = bar.children;
      const width = [...fill.children].reduce((sum, one) => sum + one.getBoundingClientRect().width, 0);
      const { x, width: thick } = mark.getBoundingClientRect();
      return { used: width / whole.width, threshold: (x + thick / 2 - whole.x) / whole.width };
    });
    assert.ok(Math.abs(drawn.threshold - threshold / context.limit) < 0.02, JSON.stringify(drawn));
    assert.ok(Math.abs(drawn.used - context.used / context.limit) < 0.02, JSON.stringify(drawn));
  }
  await page.keyboard.press("Escape");
});

test("the gauge follows a compact and a prune", async () => {
  const server = await sharedServer();
  await writeFile(join(server.folder, "big.txt"), "a row of what was read\n".repeat(400));
  await Promise.all([1, 2, 3, 4, 5].map((number) => writeFile(join(server.folder, `${number}.txt`), "small\n")));
  const pruned = await begin(server, { title: "To be pruned", model: "demo/tools" });
  await say(server, pruned, "!read big.txt", ...[1, 2, 3, 4, 5].map((number) => `!read ${number}.txt`), "and so on");
  const compacted = await begin(server, { title: "To be compacted" });
  await say(server, compacted, ...[1, 2, 3, 4, 5, 6, 7].map((number) => `${"thread ".repeat(170)}${number}`));
  const page = await openSession(server, pruned, WIDE);
  const cases = [
    [pruned, "Prune now", "Saved by pruning", "pruned"],
    [compacted, "Compact now", "Summary", "summary"],
  ];
  for (const [id, button, label, part] of cases) {
    await goTo(page, id);
    const details = pane(page).getByRole("region", { name: "Context breakdown" });
    const figure = details.locator("dl > div").filter({ hasText: label }).first().locator("dd");
    await pane(page).getByRole("button", { name: /^Context\./ }).click();
    await becomes(() => figure.innerText(), "0");
    const before = await report(server, id);
    // Pressed by key: a click elsewhere would close the figures.
    await pane(page).getByRole("button", { name: button }).press("Enter");
    await until(async () => (await report(server, id)).parts[part] > 0, button);
    const after = await report(server, id);
    assert.ok(after.used < before.used, `${before.used} ${after.used}`);
    await becomes(() => figure.innerText(), grouped(after.parts[part]));
    await becomes(() => details.locator("strong").innerText(), grouped(after.used));
  }
});

test("a sidecar opens beside the thread, is ephemeral, and nothing said in it goes back", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Has a sidecar" });
  await say(server, id, "one");
  const before = await stored(server, id);
  const page = await openSession(server, id, WIDE);
  await pane(page).getByRole("button", { name: "Open Sidecar" }).click();
  const beside = pane(page, true);
  const field = beside.getByRole("textbox", { name: "Message", exact: true });
  await until(() => field.evaluate((one) => one === document.activeElement), "the focus");
  await beside.getByText("Side chat, not added to the main one").waitFor();
  await page.keyboard.type("only beside");
  await page.keyboard.press("Enter");
  const [, sidecar] = /\?beside=([\w-]+)/.exec(page.url());
  await becomes(async () => told(await stored(server, sidecar)), [...told(before), ["You", "only beside"], ["Assistant", "only beside"]]);
  await becomes(async () => shown(beside), told(await stored(server, sidecar)));
  await becomes(() => shown(thread(page)), told(before));
  assert.deepEqual(told(await stored(server, id)), told(before));
  const session = await server.call("GET", `/api/sessions/${sidecar}`);
  assert.deepEqual([session.metadata.ephemeral, session.parent_id], [true, id]);
  assert.equal(await row(page, "Sidecar of Has a sidecar").count(), 0);
  await beside.getByRole("button", { name: "Close this pane" }).click();
  await beside.waitFor({ state: "detached" });
  assert.equal(openId(page), id);
});

test("the turn tab tells the model, the tokens in five kinds and the time, and what the model saw, proven", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Inspected", model: "demo/tools", rules: [{ permission: "bash", pattern: "rm *", action: "deny" }] });
  await say(server, id, "first words", "!ls");
  const turnId = await turnOf(server, id);
  const turn = await server.call("GET", `/api/turns/${turnId}`);
  const page = await openSession(server, id, WIDE);
  await thread(page).getByRole("article", { name: "Assistant" }).last().getByRole("button", { name: "Inspect turn" }).click();
  const tab = inspector(page).getByRole("tabpanel");
  await tab.getByRole("heading", { name: "!ls" }).waitFor();
  const sum = (kind) => turn.steps.reduce((total, step) => total + (step.usage[kind] ?? 0), 0);
  const kinds = [["Input", "input"], ["Cache read", "cache_read"], ["Cache write", "cache_write"], ["Output", "output"], ["Reasoning", "reasoning"]];
  const table = await tab.getByRole("table", { name: "Tokens of this turn" }).getByRole("row").evaluateAll((all) => all.map((one) => [...one.children].map((cell) => cell.innerText.trim())));
  const all = kinds.reduce((total, [, kind]) => total + sum(kind), 0);
  assert.deepEqual(table, [...kinds.map(([name, kind]) => [name, grouped(sum(kind))]), ["Total tokens", grouped(all)]]);
  assert.ok(sum("input") > 0 && sum("output") > 0);
  const steps = await tab.getByRole("list").first().getByRole("listitem").allInnerTexts();
  assert.equal(steps.length, turn.steps.length);
  steps.forEach((step, index) => assert.match(step, new RegExp(`^Step ${index + 1}\\s+demo/tools\\s+[\\d.]+ (ms|s)\\s+${turn.steps[index].finish_reason}$`)));
  assert.match(await tab.innerText(), /Completed · .*\d{4}.* · [\d.]+ (ms|s)/);
  await tab.getByText("Verified").waitFor();
  // Each section of the prompt, the tools and the messages, word for word.
  for (const step of [0, 1]) {
    await tab.getByRole("combobox", { name: "Step" }).selectOption(String(step));
    const request = await server.call("GET", `/api/turns/${turnId}/request?step=${step}`);
    assert.equal(request.proven, true);
    await tab.getByTitle(`digest ${request.digest}`).waitFor();
    assert.ok(request.prompt.length > 0 && request.tools.length > 0);
    for (const section of step === 0 ? request.prompt : []) {
      const fold = tab.locator("section").filter({ has: page.getByRole("button", { name: `Prompt: ${section.name}` }) }).last();
      await fold.getByRole("button").click();
      assert.equal(await fold.locator("pre").textContent(), section.text);
    }
    const tools = tab.locator("section").filter({ has: page.getByRole("button", { name: /^Tools/ }) }).last();
    await tools.getByRole("button").click();
    assert.deepEqual(await tools.getByRole("listitem").locator("span").allInnerTexts(), request.tools.map((tool) => tool.name));
    const messages = tab.locator("section").filter({ has: page.getByRole("button", { name: /^Messages/ }) }).last();
    await messages.getByRole("button").click();
    assert.equal(await messages.getByRole("listitem").count(), request.messages.length);
    assert.equal(await messages.getByRole("listitem").first().locator("pre").textContent(), textOf(request.messages[0]));
  }
  await inspect(page, "Rules");
  const own = inspector(page).getByRole("region", { name: "This session" });
  assert.equal((await own.getByRole("listitem").innerText()).replace(/\s+/g, " ").trim(), "deny bash rm * Revoke");
});

test("the tree draws every turn, the head and the branches; a click opens a turn, a branch opens its session", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "A tree" });
  await say(server, id, "root", "left", "leaf");
  const before = await stored(server, id);
  await server.call("POST", `/api/sessions/${id}/rewind`, { message_id: before[2].id, mode: "edit" });
  await say(server, id, "right");
  const branch = await server.call("POST", `/api/sessions/${id}/branch`, { from_message_id: before[1].id, metadata: { title: "A branch of the tree" } });
  const page = await openSession(server, id, WIDE);
  await inspect(page, "Tree");
  const tab = inspector(page).getByRole("tabpanel");
  await tab.getByText("4 turns, 2 rewound, 1 branch. Select a turn to inspect it.").waitFor();
  const node = (name) => tab.locator(".react-flow__node").and(page.getByLabel(name, { exact: true }));
  await node("Turn root, completed").waitFor();
  await node("Turn left, rewound, completed").waitFor();
  await node("Turn leaf, rewound, completed").waitFor();
  await node("Turn right, head, completed").waitFor();
  await node("Branch A branch of the tree").waitFor();
  assert.match(await node("Turn right, head, completed").innerText(), /head/);
  // Edges are drawn when the nodes they join have been measured.
  await tab.locator(".react-flow__edge").nth(3).waitFor({ state: "attached" });
  assert.equal(await tab.locator(".react-flow__edge").count(), 4);
  const { turns } = await tree(server, id);
  await node("Turn left, rewound, completed").click();
  await inspector(page).getByRole("tab", { name: "Turn", selected: true }).waitFor();
  await tab.getByRole("heading", { name: "left" }).waitFor();
  const { digest } = await server.call("GET", `/api/turns/${turns.find((turn) => turn.text === "left").id}/request`);
  await tab.getByTitle(`digest ${digest}`).waitFor();
  await inspect(page, "Tree");
  await node("Branch A branch of the tree").getByRole("button", { name: "Open" }).click();
  await until(() => openId(page) === branch.id, "the branch to open");
});

test("the tree is walked by keyboard", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "By keyboard" });
  await say(server, id, "root", "leaf");
  const page = await openSession(server, id, WIDE);
  await inspect(page, "Tree");
  const tab = inspector(page).getByRole("tabpanel");
  const node = tab.locator(".react-flow__node").and(page.getByLabel("Turn root, completed", { exact: true }));
  // The graph draws only what is in sight, and finds its place at first: a node may go and come back meanwhile.
  await until(() => keepsFocus(node), "the node to keep the focus");
  await page.keyboard.press("Enter");
  await tab.getByRole("heading", { name: "root" }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("role")), "tabpanel");
});

test("the reflog tells every move, and each is a place to go to", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Moves" });
  await say(server, id, "one", "two", "three");
  const before = await stored(server, id);
  await server.call("POST", `/api/sessions/${id}/rewind`, { message_id: before[2].id, mode: "edit" });
  const page = await openSession(server, id, WIDE);
  await inspect(page, "Reflog");
  const moves = inspector(page).getByRole("tabpanel").getByRole("listitem");
  const words = async () => (await moves.allInnerTexts()).map((text) => text.replaceAll(/\s+/g, " ").trim());
  const { moves: known } = await server.call("GET", `/api/sessions/${id}/reflog`);
  assert.equal(known.length, 4);
  await becomes(async () => (await words()).length, known.length);
  assert.match((await words())[0], /Rewound to · (now|\d+ min) .*current$/);
  assert.match((await words())[1], /Turn · (now|\d+ min) three Go to$/);
  await moves.nth(1).getByRole("button").click();
  await becomes(async () => told(await stored(server, id)), told(before));
  await becomes(() => shown(thread(page)), told(before));
  await banner(page).waitFor({ state: "detached" });
  await becomes(async () => (await words()).length, 5);
  assert.match((await words())[0], /Jumped to · (now|\d+ min) three current$/);
});

test("what the model saw in two turns is compared line by line", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Differs" });
  await say(server, id, "first words", "second words");
  const page = await openSession(server, id, WIDE);
  await inspect(page, "Turn");
  const tab = inspector(page).getByRole("tabpanel");
  await tab.getByRole("combobox", { name: "Compare what the model saw with another turn" }).selectOption({ label: "first words" });
  const dialog = page.getByRole("dialog", { name: "Compare requests" });
  const section = (name) => dialog.locator("section").filter({ has: page.getByRole("heading", { name }) });
  await section("Messages").waitFor();
  const lines = await section("Messages").locator("pre > div").allInnerTexts();
  const of = (mark) => lines.filter((line) => line.startsWith(mark)).map((line) => line.slice(1).trim()).filter(Boolean);
  assert.deepEqual(of("−"), []);
  assert.deepEqual(of("+"), ["— assistant", "first words", "— user", "second words"]);
  assert.match(await section("Tools").innerText(), /identical/);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
});

test("two branches are compared from where they part, on a phone too; side by side they can be swapped, and go on each by itself", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "One way" });
  await say(server, id, "root", "this way");
  const [, answer] = await stored(server, id);
  const branch = await server.call("POST", `/api/sessions/${id}/branch`, { from_message_id: answer.id, metadata: { title: "Other way" } });
  await say(server, branch.id, "that way");
  const page = await openSession(server, id, WIDE);
  await inspect(page, "Tree");
  const tab = inspector(page).getByRole("tabpanel");
  await tab.getByRole("button", { name: "Compare" }).click();
  const dialog = page.getByRole("dialog", { name: "Compare versions" });
  await dialog.getByText("2 messages are identical.").waitFor();
  const sides = () => dialog.getByRole("region").evaluateAll((all) => all.map((one) => [one.ariaLabel, ...[...one.querySelectorAll("article")].map((said) => said.innerText.trim())]));
  await becomes(sides, [["One way", "this way", "this way"], ["Other way", "that way", "that way"]]);
  assert.deepEqual(await audit(page), []);
  const [left, right] = [await dialog.getByRole("region").first().boundingBox(), await dialog.getByRole("region").last().boundingBox()];
  assert.ok(left.y === right.y && left.x < right.x, "side by side");
  await page.setViewportSize({ width: 390, height: 800 });
  const [above, below] = [await dialog.getByRole("region").first().boundingBox(), await dialog.getByRole("region").last().boundingBox()];
  assert.ok(above.x === below.x && above.y < below.y && above.width > 250, "one above the other");
  await page.setViewportSize(WIDE);
  await dialog.getByRole("button", { name: "Open side by side" }).click();
  const beside = pane(page, true);
  await beside.getByText("Next to “One way”").waitFor();
  await becomes(async () => shown(thread(page)), told(await stored(server, id)));
  await becomes(async () => shown(beside), told(await stored(server, branch.id)));
  await beside.getByRole("textbox", { name: "Message", exact: true }).fill("further");
  await beside.getByRole("textbox", { name: "Message", exact: true }).press("Enter");
  await becomes(async () => (await stored(server, branch.id)).length, 6);
  await rests(server, branch.id);
  await becomes(async () => shown(beside), told(await stored(server, branch.id)));
  assert.equal((await stored(server, id)).length, 4);
  await beside.getByRole("button", { name: "Side conversation actions" }).click();
  await page.getByRole("menuitem", { name: "Swap panes" }).click();
  await until(() => openId(page) === branch.id, "the other one to be in the middle");
  await becomes(async () => shown(thread(page)), told(await stored(server, branch.id)));
  await becomes(async () => shown(beside), told(await stored(server, id)));
});
