/** The hand's speed: the list of sessions kept in order, the palette, settings and money, files by an @, saved prompts. */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { audit, openPage, startServer, test } from "./kit.mjs";
import { becomes, begin, composer, goTo, openId, openSession, rests, row, say, send, stored, thread, until } from "./session.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));
const link = (page, title) => row(page, title).getByRole("link");
const palette = (page) => page.getByRole("dialog", { name: "Search or run a command" });
const option = (page, name) => palette(page).getByRole("option", { name });
const sidebar = (page) => page.getByRole("complementary", { name: "Sessions" });

test("sessions are pinned, chosen and put away together by keyboard, and the list is narrowed, widened and hidden", async () => {
  const server = await startServer();
  const ids = {};
  for (const title of ["One", "Two", "Three", "Four"]) ids[title] = await begin(server, { title });
  const page = await openPage(server);
  await link(page, "One").focus();
  await page.keyboard.press("p");
  const pinned = page.getByRole("list", { name: "Pinned" });
  await pinned.getByText("One").waitFor();
  assert.equal((await server.call("GET", `/api/sessions/${ids.One}`)).pinned, true);
  assert.deepEqual((await server.call("GET", "/api/sessions?pinned=true")).sessions.map((one) => one.title), ["One"]);

  await link(page, "Two").focus();
  await page.keyboard.press("Space");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("Space");
  const chosen = page.getByRole("group", { name: "Selected sessions" });
  await chosen.getByText("2 selected").waitFor();
  assert.deepEqual(await audit(page), []);
  await chosen.getByRole("button", { name: "Archive" }).press("Enter");
  const undo = page.getByRole("button", { name: "Undo" });
  await undo.waitFor();
  await row(page, "Two").waitFor({ state: "detached" });
  const listed = async () => (await server.call("GET", "/api/sessions")).sessions.map((one) => one.title).sort();
  assert.deepEqual(await listed(), ["Four", "One"]);
  await becomes(() => undo.evaluate((one) => one === document.activeElement), true);
  await page.keyboard.press("Enter");
  await row(page, "Two").waitFor();
  await becomes(listed, ["Four", "One", "Three", "Two"]);

  const edge = page.getByRole("separator", { name: "Width of the session list" });
  const width = async () => Math.round((await sidebar(page).boundingBox()).width);
  assert.equal(await width(), 288);
  await edge.press("ArrowRight");
  assert.equal(await width(), 304);
  const at = await edge.boundingBox();
  await page.mouse.move(at.x + 4, at.y + 200);
  await page.mouse.down();
  await page.mouse.move(400, at.y + 210, { steps: 3 });
  await page.mouse.up();
  assert.equal(await width(), 400);
  await page.keyboard.press("Control+b");
  await sidebar(page).waitFor({ state: "hidden" });
  assert.deepEqual(await audit(page), []);
  await page.reload();
  await page.getByRole("button", { name: "Sessions", exact: true }).click();
  await pinned.getByText("One").waitFor();
  assert.equal(await width(), 400);
});

test("the palette leads to sessions, commands, models and messages, and says when nothing fits", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Labyrinth notes" });
  await say(server, id, "the minotaur sleeps");
  await server.call("POST", "/api/prompts", { name: "review", text: "Review the diff." });
  const other = await begin(server, { title: "Elsewhere" });
  const page = await openSession(server, other);
  const ask = async (typed) => {
    // Nobody waits before they type: the keys are the palette's from the first one on.
    await page.keyboard.press("Control+k");
    await page.keyboard.type(typed);
  };
  await ask("zzqqxx");
  assert.equal(await palette(page).getByRole("combobox").inputValue(), "zzqqxx");
  assert.equal(await composer(page).inputValue(), "");
  await palette(page).getByText("No results").waitFor();
  await palette(page).getByRole("combobox").fill("");
  await option(page, /New session/).waitFor();
  assert.deepEqual(await audit(page), []);
  await palette(page).getByRole("combobox").fill("zzqqxx");
  await palette(page).getByText("No results").waitFor();
  await page.keyboard.press("Escape");
  await palette(page).waitFor({ state: "detached" });
  await ask("lbrnth");
  await option(page, /Labyrinth notes/).waitFor();
  await page.keyboard.press("Enter");
  await until(() => openId(page) === id, "the session to open");
  await ask("dark th");
  await page.keyboard.press("Enter");
  await becomes(() => page.evaluate(() => document.documentElement.dataset.theme), "dark");
  await ask("minotaur sle");
  await option(page, /the minotaur sleeps/).first().waitFor();
  await page.keyboard.press("Enter");
  await until(() => /\/m\//.test(page.url()), "the message to be gone to");
  await ask("demo/long");
  await option(page, /demo\/long/).first().waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Model: demo/long" }).waitFor();
  await ask("review");
  await option(page, /review Review the diff/).waitFor();
  await page.keyboard.press("Enter");
  await becomes(() => composer(page).inputValue(), "Review the diff.");
  await composer(page).fill("/revi");
  await page.getByRole("listbox", { name: "Commands" }).getByText("/review").waitFor();
  await page.keyboard.press("Tab");
  await becomes(() => composer(page).inputValue(), "Review the diff.");
});

test("settings are kept by the server or by this browser, and what was spent is told by day, model and session", async () => {
  const server = await startServer({ env: { ANTHROPIC_API_KEY: "" } });
  await say(server, await begin(server, { title: "Spender" }), "one", "two");
  const page = await openPage(server);
  await page.getByRole("button", { name: "Settings" }).click();
  const dialog = page.getByRole("dialog", { name: "Settings" });
  await dialog.getByLabel("Model", { exact: true }).selectOption("demo/echo");
  await becomes(async () => (await server.call("GET", "/api/settings")).default_model, "demo/echo");
  await dialog.getByLabel("Max steps per turn").fill("7");
  await dialog.getByRole("button", { name: "Save", exact: true }).click();
  await becomes(async () => (await server.call("GET", "/api/settings")).max_steps, 7);
  await dialog.getByText(/ANTHROPIC_API_KEY/).first().waitFor();
  await dialog.getByLabel("Density").selectOption("compact");
  assert.equal(await page.evaluate(() => document.documentElement.dataset.density), "compact");
  await dialog.getByLabel("Prompt name").fill("tidy");
  await dialog.getByLabel("Prompt text").fill("Tidy up.");
  await dialog.getByRole("button", { name: "Save prompt" }).click();
  await dialog.getByText("/tidy").waitFor();
  assert.deepEqual(await audit(page), []);
  await dialog.getByRole("button", { name: "Delete /tidy" }).press("Enter");
  await dialog.getByText("/tidy").waitFor({ state: "detached" });
  await page.keyboard.press("Escape");

  await page.getByRole("button", { name: "Usage" }).click();
  const spent = page.getByRole("dialog", { name: "Usage" });
  const { total } = await server.call("GET", "/api/usage?by=day");
  await spent.getByText(`for ${total.calls} model calls`).waitFor();
  await spent.getByLabel("Group by").selectOption("model");
  await spent.getByRole("row", { name: /demo\/echo/ }).waitFor();
  await spent.getByText(/its price is unknown/).waitFor();
  await spent.getByLabel("Group by").selectOption("session");
  assert.deepEqual(await audit(page), []);
  await spent.getByRole("link", { name: "Spender" }).click();
  await thread(page).waitFor();
});

test("an @ finds files of the folder and sends them along, and Alt with an arrow goes from question to question", async () => {
  const server = await sharedServer();
  await mkdir(join(server.folder, "maze"), { recursive: true });
  await writeFile(join(server.folder, "maze", "walls.txt"), "left, right");
  await writeFile(join(server.folder, "maze", "hidden.log"), "no");
  await writeFile(join(server.folder, ".gitignore"), "*.log\n");
  const id = await begin(server, { title: "With files" });
  await say(server, id, "first question", `second question ${"word ".repeat(900)}`);
  const page = await openSession(server, id);
  await composer(page).pressSequentially("look at @maze/");
  const files = page.getByRole("listbox", { name: "Files" });
  await files.getByRole("option", { name: "maze/walls.txt" }).waitFor();
  assert.equal(await files.getByText("hidden.log").count(), 0);
  assert.deepEqual(await audit(page), []);
  await page.keyboard.press("Enter");
  await becomes(() => composer(page).inputValue(), "look at @maze/walls.txt ");
  // It is seen before it is sent.
  const along = page.getByRole("list", { name: "Attached files" });
  await along.getByText("maze/walls.txt").waitFor();
  await page.keyboard.press("Enter");
  await thread(page).getByRole("button", { name: "walls.txt" }).waitFor();
  await until(async () => (await stored(server, id)).length === 6, "the answer");
  const [, , , , said] = await stored(server, id);
  assert.deepEqual(said.parts.map((part) => [part.type, part.filename]), [["file", "walls.txt"], ["text", undefined]]);

  // What a pasted text names is shown, and goes along when somebody says so; a name with a space in it is a name, too.
  const paste = (words) =>
    composer(page).evaluate((field, text) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData("text/plain", text);
      field.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
      document.execCommand("insertText", false, text);
    }, words);
  await writeFile(join(server.folder, "maze", "my notes.txt"), "mine");
  await paste("they wrote @maze/walls.txt somewhere ");
  await along.getByRole("button", { name: "Attach: maze/walls.txt" }).waitFor();
  assert.deepEqual(await audit(page), []);
  await composer(page).pressSequentially("see @maze/my");
  await files.getByRole("option", { name: "maze/my notes.txt" }).waitFor();
  await page.keyboard.press("Enter");
  await becomes(() => composer(page).inputValue(), "they wrote @maze/walls.txt somewhere see @'maze/my notes.txt' ");
  await along.getByRole("button", { name: "Don’t attach this file: maze/my notes.txt" }).waitFor();
  await page.keyboard.press("Enter");
  await until(async () => (await stored(server, id)).length === 8, "the answer");
  const files_of = async (at) => (await stored(server, id))[at].parts.flatMap((part) => part.filename ?? []);
  assert.deepEqual(await files_of(6), ["my notes.txt"]);
  await paste("and @maze/walls.txt again");
  await along.getByRole("button", { name: "Attach: maze/walls.txt" }).click();
  await composer(page).press("Enter");
  await until(async () => (await stored(server, id)).length === 10, "the answer");
  assert.deepEqual(await files_of(8), ["walls.txt"]);
  // Settled and drawn: what is drawn anew under it loses the focus.
  await rests(server, id);
  await page.getByRole("article", { name: "Assistant" }).nth(4).getByText("again").waitFor();

  const first = (await stored(server, id))[0].id;
  for (let presses = 0; presses < 5; presses += 1) {
    const before = await page.evaluate(() => document.activeElement?.getAttribute("data-message"));
    await page.keyboard.press("Alt+ArrowUp");
    await until(async () => (await page.evaluate(() => document.activeElement?.getAttribute("data-message"))) !== before, "another question");
  }
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("data-message")), first);
});
