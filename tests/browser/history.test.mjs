/** The middle: what is drawn of a conversation, what can be done to it, and the composer under it. */
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { newContext, startServer, test } from "./kit.mjs";
import { banner, becomes, begin, composer, goTo, message, openId, openSession, pane, rests, row, say, send, shown, stored, textOf, thread, told, until } from "./session.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));
/** A window in which a whole conversation is drawn: rows far outside of it are not. */
const TALL = { height: 6000 };
const group = (page, who, text) => message(thread(page), who, text);
const summaryLine = (page) => thread(page).getByRole("group", { name: "Summary of earlier turns" });
const turns = (from, to) => Array.from({ length: to - from + 1 }, (_, index) => `${"thread ".repeat(170)}${from + index}`);

/** Act on a message as with a mouse. */
async function act(page, who, text, action) {
  const one = group(page, who, text);
  await one.hover();
  await one.getByRole("button", { name: action, exact: true }).click();
}

/** What the page shows is what is stored on the line. */
async function showsTheLine(page, server, id) {
  await becomes(async () => shown(thread(page)), told(await stored(server, id)));
}

test("an answer is drawn as Markdown, and the same again after a reload", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Markdown" });
  const page = await openSession(server, id);
  const said = "## A heading\n\nSome **bold** and `code`, H~2~O, ~~gone~~.\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nprint('hi')\n```\n\n[a link](https://example.org/x)";
  await composer(page).fill(said);
  await composer(page).press("Enter");
  for (const again of [false, true]) {
    if (again) await page.reload();
    const answer = thread(page).getByRole("article", { name: "Assistant" });
    await answer.getByRole("link", { name: "a link" }).waitFor();
    assert.equal(await answer.getByRole("heading", { level: 2 }).innerText(), "A heading");
    assert.equal(await answer.locator("strong").innerText(), "bold");
    assert.equal(await answer.getByRole("paragraph").first().innerText(), "Some bold and code, H~2~O, gone.");
    assert.deepEqual(await answer.getByRole("deletion").allInnerTexts(), ["gone"]);
    assert.deepEqual(await answer.getByRole("listitem").allInnerTexts(), ["one", "two"]);
    assert.deepEqual(await answer.getByRole("cell").allInnerTexts(), ["1", "2"]);
    assert.equal(await answer.getByRole("group", { name: "Code, py" }).innerText(), "print('hi')");
    const link = answer.getByRole("link", { name: "a link" });
    assert.deepEqual([await link.getAttribute("href"), await link.getAttribute("target"), await link.getAttribute("rel")], ["https://example.org/x", "_blank", "noopener noreferrer"]);
  }
  assert.deepEqual((await stored(server, id)).map(textOf), [said, said]);
});

test("reasoning is folded and opens to every word of it", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Reasoning", model: "demo/long" });
  const page = await openSession(server, id);
  await send(page, "30");
  const answer = thread(page).getByRole("article", { name: "Assistant" });
  const fold = answer.getByRole("button", { name: /^Thought/ });
  await fold.waitFor();
  const words = "The user asked for 30 words. I will count them as I go.";
  assert.equal(await fold.getAttribute("aria-expanded"), "false");
  assert.equal(await answer.getByText(words).count(), 0);
  await fold.click();
  await answer.getByText(words, { exact: true }).waitFor();
  const [, last] = await stored(server, id);
  assert.equal(last.parts.find((part) => part.type === "reasoning").text, words);
});

test("a tool card tells its input, its state and its output, long output folded; steps are marked", async () => {
  const server = await sharedServer();
  await writeFile(join(server.folder, "long.txt"), Array.from({ length: 60 }, (_, index) => `line ${index + 1} of the file\n`).join(""));
  const id = await begin(server, { title: "Tools", model: "demo/tools" });
  const page = await openSession(server, id);
  await send(page, "!read long.txt\n!read missing.txt");
  const answer = thread(page).getByRole("article", { name: "Assistant" });
  await answer.getByRole("separator", { name: "Step 2" }).waitFor();
  // All of it is there: nothing moves any more.
  await answer.getByRole("button", { name: "Regenerate" }).waitFor();
  await rests(server, id);
  await becomes(() => answer.getAttribute("data-message"), (await stored(server, id)).at(-1).id);
  const card = answer.getByRole("button", { name: "read long.txt done" });
  await card.waitFor();
  assert.equal(await answer.getByRole("group", { name: "Output" }).count(), 0);
  await card.click();
  assert.equal(await answer.getByRole("group", { name: "Path" }).innerText(), "long.txt");
  const output = answer.getByRole("group", { name: "Output" });
  const [, last] = await stored(server, id);
  const [good, bad] = last.parts.filter((part) => part.type === "tool-read");
  const whole = typeof good.output === "string" ? good.output : JSON.stringify(good.output, null, 2);
  assert.match(whole, /line 60 of the file/);
  assert.equal((await output.textContent()).split("\n").length, 20);
  await answer.getByRole("button", { name: /^Show all \d+ lines$/ }).click();
  assert.equal(await output.textContent(), whole.replace(/\n+$/, ""));
  await answer.getByRole("button", { name: "Show less" }).waitFor();
  const failed = answer.getByRole("button", { name: "read missing.txt failed" });
  await failed.click();
  assert.equal(await answer.getByRole("group", { name: "Error" }).textContent(), bad.errorText);
});

test("what a turn used is told on hover and on focus", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Usage", model: "demo/long" });
  await say(server, id, "40");
  const [, last] = await stored(server, id);
  const { usage } = last.metadata;
  const page = await openSession(server, id);
  const number = thread(page).getByRole("button", { name: /tokens\. Input/ });
  const tip = thread(page).getByRole("tooltip");
  await number.hover();
  const words = await tip.innerText();
  const expected = { Input: usage.input, Output: usage.output, Reasoning: usage.reasoning, "Cache read": usage.cache_read, "Cache write": usage.cache_write };
  for (const [name, value] of Object.entries(expected)) assert.match(words, new RegExp(`${name}\\s+${value.toLocaleString("en")}(\\s|$)`));
  assert.match(words, /demo\/long/);
  assert.ok(usage.reasoning > 0);
  await composer(page).hover();
  await tip.waitFor({ state: "detached" });
  await number.focus();
  await tip.waitFor();
});

test("compact now puts a line before the first kept message, which opens to the summary and to what was summarised", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Summarised" });
  await say(server, id, ...turns(1, 8));
  const before = await stored(server, id);
  const page = await openSession(server, id, TALL);
  await showsTheLine(page, server, id);
  await pane(page).getByRole("button", { name: "Compact now" }).click();
  await summaryLine(page).waitFor();
  const after = await stored(server, id);
  const [summary, firstKept] = after;
  const { data } = summary.parts.find((part) => part.type === "data-compaction");
  assert.equal(before.length, data.turns * 2 + after.length - 1);
  // The line comes first; right behind it what is kept.
  await becomes(
    () => thread(page).locator("[data-message]").evaluateAll((all) => all.slice(0, 2).map((one) => one.dataset.message)),
    [summary.id, firstKept.id],
  );
  const line = summaryLine(page);
  await line.getByRole("button", { name: `Summarised ${data.turns} earlier turns` }).click();
  await line.getByRole("heading", { name: "Goal" }).waitFor();
  await line.getByRole("button", { name: "Show original messages" }).click();
  await becomes(() => shown(line), told(before.slice(0, data.turns * 2)));
  // It stands there after a reload too, folded.
  await page.reload();
  await line.getByRole("button", { name: `Summarised ${data.turns} earlier turns` }).waitFor();
  assert.equal(await line.getByRole("article").count(), 0);
});

test("a small window is summarised by itself, and the line shows while the talk goes on", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "A small window", model: "demo/small" });
  const page = await openSession(server, id);
  for (let number = 0; number < 8 && (await summaryLine(page).count()) === 0; number += 1) {
    await send(page, `${"labyrinth ".repeat(60)}${number}`);
    await until(async () => (await stored(server, id)).some((one) => textOf(one).endsWith(` ${number}`) && one.role === "assistant"), "an answer");
    await rests(server, id);
    await until(async () => (await shown(thread(page))).at(-1)?.[1].endsWith(` ${number}`), "the answer to be drawn");
  }
  await summaryLine(page).waitFor();
  const messages = await stored(server, id);
  assert.equal(messages.filter((one) => one.metadata.summary).length, 1);
  await becomes(() => shown(thread(page)), told(messages.filter((one) => !one.metadata.summary)));
});

test("prune now leaves stubs for the model, which open to the stored output", async () => {
  const server = await sharedServer();
  const output = Array.from({ length: 400 }, (_, index) => `row ${index + 1} of what was read\n`).join("");
  await writeFile(join(server.folder, "rows.txt"), output);
  await Promise.all([1, 2, 3, 4, 5].map((number) => writeFile(join(server.folder, `small${number}.txt`), "small\n")));
  const id = await begin(server, { title: "Pruned", model: "demo/tools" });
  await say(server, id, "!read rows.txt", ...[1, 2, 3, 4, 5].map((number) => `!read small${number}.txt`), "and so on");
  const page = await openSession(server, id, TALL);
  const stub = thread(page).getByText("The model sees a stub of this output.");
  await showsTheLine(page, server, id);
  assert.equal(await stub.count(), 0);
  await pane(page).getByRole("button", { name: "Prune now" }).click();
  await stub.waitFor();
  const card = thread(page).getByRole("button", { name: "read rows.txt done" });
  await card.click();
  await thread(page).getByRole("button", { name: /^Show all \d+ lines$/ }).click();
  const [, first] = await stored(server, id);
  const part = first.parts.find((one) => one.type === "tool-read");
  const whole = typeof part.output === "string" ? part.output : JSON.stringify(part.output, null, 2);
  assert.match(whole, /row 400 of what was read/);
  assert.equal(await thread(page).getByRole("group", { name: "Output" }).textContent(), whole.replace(/\n+$/, ""));
  // And it is a stub that the model is given.
  await send(page, "go on");
  await until(async () => (await stored(server, id)).length === 16, "an answer");
  await rests(server, id);
  const turn = (await stored(server, id)).at(-1).metadata.turn_id;
  const request = await server.call("GET", `/api/turns/${turn}/request`);
  assert.doesNotMatch(JSON.stringify(request.messages), /row 200 of what was read/);
  await pane(page).getByRole("button", { name: "Prune now" }).click();
  await page.getByText("No older tool outputs to prune.").waitFor();
});

test("a message, an answer and a block of code are copied as they are stored", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Copied" });
  await say(server, id, "say **this**\n\n```\nx = 1\n  y = 2\n```");
  const [asked, answered] = await stored(server, id);
  const context = await newContext();
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: server.url });
  const page = await openSession(server, id, { context });
  const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
  const articles = thread(page).getByRole("article");
  await articles.nth(0).hover();
  await articles.nth(0).getByRole("button", { name: "Copy message" }).click();
  await becomes(clipboard, textOf(asked));
  await articles.nth(1).getByRole("button", { name: "Copy code" }).click();
  await becomes(clipboard, "x = 1\n  y = 2");
  await articles.nth(1).getByRole("button", { name: "Copy answer" }).click();
  await becomes(clipboard, textOf(answered));
});

test("a message is edited and sent again, and what came after it is hidden, not lost", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Edited" });
  await say(server, id, "one", "two", "three");
  const before = await stored(server, id);
  const page = await openSession(server, id);
  await act(page, "You", "two", "Edit and resend");
  const field = page.getByRole("textbox", { name: "The message" });
  await becomes(() => field.inputValue(), "two");
  // Esc leaves it as it was.
  await field.fill("nothing");
  await field.press("Escape");
  await group(page, "You", "two").waitFor();
  await act(page, "You", "two", "Edit and resend");
  await field.fill("two, said differently");
  await field.press("Enter");
  await until(async () => told(await stored(server, id)).at(-1)[1] === "two, said differently", "the answer");
  await rests(server, id);
  const versions = thread(page).getByRole("group", { name: "Versions" });
  await versions.getByText("2/2").waitFor();
  assert.equal(await banner(page).count(), 0);
  await showsTheLine(page, server, id);
  assert.deepEqual(told(await stored(server, id)), [["You", "one"], ["Assistant", "one"], ["You", "two, said differently"], ["Assistant", "two, said differently"]]);
  await versions.getByRole("button", { name: "Previous version" }).click();
  await becomes(async () => told(await stored(server, id)), told(before));
  await showsTheLine(page, server, id);
});

test("a rewind puts the text into the composer, and the hidden turns can be shown greyed and brought back", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Rewound" });
  await say(server, id, "one", "two", "three");
  const before = await stored(server, id);
  const page = await openSession(server, id);
  await act(page, "You", "two", "Rewind to here");
  await becomes(() => composer(page).inputValue(), "two");
  await banner(page).getByText("4 messages undone", { exact: true }).waitFor();
  await showsTheLine(page, server, id);
  assert.equal((await stored(server, id)).length, 2);
  await banner(page).getByRole("button", { name: "Show" }).click();
  await becomes(() => shown(banner(page)), told(before.slice(2)));
  const grey = await banner(page).getByRole("article").first().evaluate((one) => getComputedStyle(one.parentElement).filter);
  assert.match(grey, /grayscale/);
  // Nothing can be done to what is past.
  assert.equal(await banner(page).getByRole("article").getByRole("button", { name: "Rewind to here" }).count(), 0);
  await page.reload();
  await banner(page).getByRole("button", { name: "Restore" }).click();
  await banner(page).waitFor({ state: "detached" });
  await showsTheLine(page, server, id);
  assert.deepEqual((await stored(server, id)).map((one) => one.id), before.map((one) => one.id));
  // It stands in its place again, and is not to be said anew.
  await becomes(() => composer(page).inputValue(), "");
});

test("an answer asked for again and again leaves a switch between its versions, and no bar", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Versions" });
  await say(server, id, "one", "two");
  const page = await openSession(server, id);
  const versions = thread(page).getByRole("group", { name: "Versions" });
  const answers = [];
  for (const time of [2, 3, 4]) {
    answers.push((await stored(server, id)).at(-1).id);
    await act(page, "Assistant", "two", "Regenerate");
    await becomes(() => versions.innerText().then((text) => text.trim()).catch(() => null), `${time}/${time}`);
    await rests(server, id);
  }
  // The switch leads to all of them: no bar says so once more.
  assert.equal(await banner(page).count(), 0);
  for (const [place, answer] of [[3, answers[2]], [2, answers[1]], [1, answers[0]]]) {
    await versions.getByRole("button", { name: "Previous version" }).click();
    await becomes(() => versions.innerText().then((text) => text.trim()), `${place}/4`);
    await becomes(async () => (await stored(server, id)).at(-1).id, answer);
    await showsTheLine(page, server, id);
  }
  assert.equal(await versions.getByRole("button", { name: "Previous version" }).isDisabled(), true);
  await versions.getByRole("button", { name: "Next version" }).click();
  await becomes(async () => (await stored(server, id)).at(-1).id, answers[1]);
});

test("what was typed since stays in the composer when a rewind is undone", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Typed since" });
  await say(server, id, "one", "two");
  const page = await openSession(server, id);
  await act(page, "You", "two", "Rewind to here");
  await becomes(() => composer(page).inputValue(), "two");
  await composer(page).fill("two, but better");
  await banner(page).getByRole("button", { name: "Restore" }).click();
  await banner(page).waitFor({ state: "detached" });
  await showsTheLine(page, server, id);
  assert.equal(await composer(page).inputValue(), "two, but better");
});

test("what a rewind hid comes back also after the conversation has gone on", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Gone on" });
  await say(server, id, "one", "two");
  const before = await stored(server, id);
  const page = await openSession(server, id);
  await act(page, "You", "two", "Rewind to here");
  await becomes(() => composer(page).inputValue(), "two");
  await send(page, "another way");
  await until(async () => (await stored(server, id)).length === 4, "an answer");
  await rests(server, id);
  const versions = thread(page).getByRole("group", { name: "Versions" });
  await versions.getByText("2/2").waitFor();
  await versions.getByRole("button", { name: "Previous version" }).click();
  await becomes(async () => told(await stored(server, id)), told(before));
  await showsTheLine(page, server, id);
  await versions.getByRole("button", { name: "Next version" }).click();
  await becomes(async () => told(await stored(server, id)).at(-1)[1], "another way");
});

test("a branch is made from a message, and from what a rewind hid", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Branched" });
  await say(server, id, "one", "two", "three");
  const before = await stored(server, id);
  const page = await openSession(server, id);
  await act(page, "Assistant", "two", "Branch from here");
  const branch = await until(() => openId(page) !== id && openId(page), "the branch to open");
  await becomes(async () => told(await stored(server, branch)), told(before.slice(0, 4)));
  await showsTheLine(page, server, branch);
  await send(page, "only here");
  await until(async () => (await stored(server, branch)).length === 6, "an answer");
  assert.deepEqual(told(await stored(server, id)), told(before));
  assert.equal((await server.call("GET", `/api/sessions/${branch}`)).parent_id, id);
  await goTo(page, id);
  await act(page, "You", "two", "Branch from here");
  const other = await until(() => ![id, branch].includes(openId(page)) && openId(page), "the other branch to open");
  await showsTheLine(page, server, other);
  assert.equal(told(await stored(server, other))[0][1], "one");
  await goTo(page, id);
  await act(page, "You", "two", "Rewind to here");
  await banner(page).getByText("4 messages undone").waitFor();
  await banner(page).getByRole("button", { name: "Branch from these" }).click();
  const forked = await until(() => ![id, branch, other].includes(openId(page)) && openId(page), "the fork to open");
  await becomes(async () => told(await stored(server, forked)), told(before));
  await showsTheLine(page, server, forked);
  assert.equal((await stored(server, id)).length, 2);
});

test("files are attached, at most ten, and are in the thread again after a reload", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Attached" });
  const page = await openSession(server, id);
  const png = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
  const files = [
    { name: "dot.png", mimeType: "image/png", buffer: png },
    ...Array.from({ length: 11 }, (_, index) => ({ name: `note ${index + 1}.txt`, mimeType: "text/plain", buffer: Buffer.from(`note ${index + 1}\n`) })),
  ];
  const [chooser] = await Promise.all([page.waitForEvent("filechooser"), page.getByRole("button", { name: "Attach files" }).click()]);
  await chooser.setFiles(files);
  const chips = page.getByRole("list", { name: "Attached files" }).getByRole("listitem");
  await page.getByText("At most 10 files per message; 2 files not attached.").waitFor();
  assert.deepEqual(await chips.locator("bdi").allInnerTexts(), files.slice(0, 10).map(({ name }) => name));
  for (let number = 9; number > 1; number -= 1) await page.getByRole("button", { name: `Remove this file: note ${number}.txt` }).click();
  assert.deepEqual(await chips.locator("bdi").allInnerTexts(), ["dot.png", "note 1.txt"]);
  await send(page, "look at **these**");
  await until(async () => (await stored(server, id)).length === 2, "an answer");
  await chips.first().waitFor({ state: "detached" });
  for (const again of [false, true]) {
    if (again) await page.reload();
    const said = thread(page).getByRole("article", { name: "You" });
    const picture = said.getByRole("img", { name: "dot.png" });
    await picture.waitFor();
    await until(() => picture.evaluate((image) => image.complete && image.naturalWidth === 1), "the picture");
    // One's own words are set as the model's are, and a picture opens large.
    assert.equal(await said.locator("strong").innerText(), "these");
    await said.getByRole("button", { name: "Open large: dot.png" }).press("Enter");
    await page.getByRole("dialog").getByRole("img", { name: "dot.png" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    const [download] = await Promise.all([page.waitForEvent("download"), said.getByRole("button", { name: "note 1.txt" }).click()]);
    assert.equal(download.suggestedFilename(), "note 1.txt");
    assert.equal(await readFile(await download.path(), "utf8"), "note 1\n");
  }
  const [asked] = await stored(server, id);
  assert.deepEqual(asked.parts.map(({ type, filename }) => filename ?? type), ["dot.png", "note 1.txt", "text"]);
});

test("a slash offers commands, completes them, and runs what was picked", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Commanded" });
  await say(server, id, "one", "two");
  const page = await openSession(server, id);
  const offered = page.getByRole("listbox", { name: "Commands" }).getByRole("option");
  await composer(page).fill("/");
  assert.equal(await offered.count(), 25);
  await composer(page).fill("/re");
  assert.deepEqual((await offered.allInnerTexts()).map((words) => words.split(/\s/)[0]), ["/rewind", "/reflog"]);
  await composer(page).press("ArrowDown");
  assert.equal(await offered.nth(1).getAttribute("aria-selected"), "true");
  await composer(page).press("ArrowUp");
  await composer(page).press("Tab");
  assert.equal(await composer(page).inputValue(), "/rewind ");
  await composer(page).press("Enter");
  await becomes(() => composer(page).inputValue(), "two");
  assert.equal((await stored(server, id)).length, 2);
  await composer(page).fill("/unrewind");
  await composer(page).press("Enter");
  await becomes(async () => (await stored(server, id)).length, 4);
  await send(page, "/title A better one");
  await row(page, "A better one").waitFor();
  await send(page, "/nonsense");
  await page.getByText("Unknown command /nonsense. Type /help for commands.").waitFor();
  assert.equal(await composer(page).inputValue(), "/nonsense");
  await send(page, "/help");
  const help = page.getByRole("dialog", { name: "Commands and keys" });
  await help.getByText("/compact").first().waitFor();
  await page.keyboard.press("Escape");
  await help.waitFor({ state: "detached" });
  await send(page, "/tree");
  await page.getByRole("tab", { name: "Tree", selected: true }).waitFor();
  await send(page, "//not a command");
  await group(page, "You", "/not a command").waitFor();
  await becomes(async () => (await stored(server, id)).length, 6);
});

test("compact by hand takes a focus and says when there is nothing to do", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "By hand" });
  await say(server, id, "one");
  const page = await openSession(server, id);
  await send(page, "/compact");
  await page.getByText("Nothing to compact yet.").waitFor();
  await say(server, id, ...turns(1, 7));
  await send(page, "/compact who holds the thread");
  const line = summaryLine(page);
  await line.getByRole("button", { name: /^Summarised \d+ earlier turns$/ }).click();
  await line.getByText("Focus: who holds the thread").waitFor();
});

test("Enter sends, Shift Enter breaks the line, and Up edits the last message", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Keys" });
  const page = await openSession(server, id);
  await composer(page).focus();
  await page.keyboard.type("one line");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("and another");
  assert.equal(await composer(page).inputValue(), "one line\nand another");
  await page.keyboard.press("Enter");
  await becomes(() => composer(page).inputValue(), "");
  await becomes(async () => (await stored(server, id)).map(textOf), ["one line\nand another", "one line\nand another"]);
  await rests(server, id);
  await page.getByText("Up edits your last message").waitFor();
  await page.keyboard.press("ArrowUp");
  await becomes(() => composer(page).inputValue(), "one line\nand another");
  await page.getByText("Editing your last message.").waitFor();
  // Esc leaves it; Up takes it again.
  await page.keyboard.press("Escape");
  await becomes(() => composer(page).inputValue(), "");
  await page.keyboard.press("ArrowUp");
  await composer(page).fill("said anew");
  await page.keyboard.press("Enter");
  await becomes(async () => (await stored(server, id)).map(textOf), ["said anew", "said anew"]);
  await thread(page).getByRole("group", { name: "Versions" }).getByText("2/2").waitFor();
  await showsTheLine(page, server, id);
});
