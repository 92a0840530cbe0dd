/** Several windows on one session, the queue, and a server that goes away and comes back. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { audit, newContext, startProxy, startServer, test } from "./kit.mjs";
import { becomes } from "./session.mjs";
import {
  AWAY,
  agrees,
  answers,
  assertBegins,
  atLeast,
  banner,
  button,
  completed,
  composer,
  conversation,
  drawn,
  hurry,
  idle,
  newSession,
  newestEnd,
  noteDrawings,
  openSession,
  own,
  said,
  say,
  shownWords,
  status,
  storedWords,
  typed,
  until,
} from "./talk.mjs";

const SLOW = { provider_id: "demo", model_id: "long", variant: "slow" };
/** So many words that only a stop ends it. */
const ENDLESS = "100000";
let shared;
/** One for all cases; some of them kill it. */
async function sharedServer() {
  const server = await (shared ??= startServer({ shared: true }));
  await server.call("GET", "/api/health").catch(() => server.start());
  return server;
}

const queued = (page) => page.getByRole("list", { name: "Queued messages" }).getByRole("listitem");

test("two windows show the same words while they are written, and a stop in either stops both", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/long");
  const windows = await twoWindows(server, id);
  const [page, other] = windows;
  await say(page, "12 words first");
  await own(other).getByText("12 words first").waitFor();
  for (const window of windows) await completed(server, window, id, 12);
  await prompt(server, id, ENDLESS);
  for (const window of windows) {
    await until(async () => (await answers(window).count()) === 2, "no second answer");
    assertBegins(await atLeast(window, 3), await storedWords(server, id), "while it is written");
  }
  await button(other, "Stop").click();
  await idle(server, id);
  for (const window of windows) {
    await newestEnd(window).getByText("Stopped.", { exact: true }).waitFor();
    await agrees(window, await storedWords(server, id));
    await button(window, "Send").waitFor();
  }
  await inStep(windows);
});

test("a rewind in one window shows in the other, and so does the way back", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/echo");
  for (const text of ["one", "two", "three"]) await answered(server, id, text);
  const windows = await twoWindows(server, id);
  const [page, other] = windows;
  await own(page).filter({ hasText: "two" }).hover();
  await button(own(page).filter({ hasText: "two" }), "Rewind to here").click();
  for (const window of windows) {
    await window.getByText("4 messages undone").waitFor();
    await said(window, ["one"]);
  }
  await typed(page, "two");
  assert.equal(await composer(other).inputValue(), "", "what was typed here is nobody else's business");
  await button(other, "Restore").click();
  for (const window of windows) {
    await window.getByText("undone").waitFor({ state: "detached" });
    await said(window, ["one", "two", "three"]);
  }
  await inStep(windows);
});

test("a compaction in one window shows in the other", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/echo");
  for (const text of ["one", "two", "three", "four"]) await answered(server, id, `${text} ${"and so on ".repeat(60)}`);
  const windows = await twoWindows(server, id);
  await windows[0].getByRole("button", { name: "Compact now" }).click();
  for (const window of windows) await window.getByRole("button", { name: /Summarised \d earlier turns?/ }).waitFor();
  await inStep(windows);
  assert.ok((await own(windows[1]).count()) < 4);
});

test("what is sent while something runs is queued, one of it can be cancelled, and the rest is answered in order", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/tools", { workspace_root: server.folder });
  const windows = await twoWindows(server, id);
  const [page, other] = windows;
  // It waits for a word, and so outlasts whatever is done here, on a slow machine too.
  await server.call("POST", `/api/sessions/${id}/prompt`, { text: "!bash true" });
  const { waiting } = await until(async () => ((await status(server, id)).waiting?.length ? status(server, id) : null), "nothing was asked");
  for (const window of windows) await said(window, ["!bash true"]);
  await say(page, "the first");
  await say(page, "not this");
  await say(page, "and the last");
  for (const window of windows) await until(async () => (await queued(window).count()) === 3, "three chips");
  assert.equal(await own(page).count(), 1, "a queued message is a chip, not a bubble");
  await other.getByRole("button", { name: "Cancel queued message: not this" }).click();
  for (const window of windows) await until(async () => (await queued(window).count()) === 2, "the chip is gone");
  await server.call("POST", `/api/sessions/${id}/approvals/${waiting[0].approval_id}`, { decision: "once" });
  await until(async () => (await answers(page).count()) === 3, "the queue did not run");
  for (const window of windows) {
    await completed(server, window, id, 3);
    await until(async () => (await queued(window).count()) === 0, "the queue is empty");
    await said(window, ["!bash true", "the first", "and the last"]);
  }
  await inStep(windows);
});

test("Esc stops and starts nothing; what waits is moved, reworded, held back, sent now and gone on with", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/long");
  const [page, other] = await twoWindows(server, id);
  const waits = (...words) => becomes(() => queued(page).allInnerTexts(), words);
  await prompt(server, id, ENDLESS);
  await atLeast(page, 1);
  for (const words of ["3 words", "4 words", "5 words"]) await say(page, words);
  await waits("3 words", "4 words", "5 words");
  await page.keyboard.press("Escape");
  await idle(server, id);
  await page.getByText("paused after a stop").waitFor();
  assert.equal(await answers(page).count(), 1);
  assert.deepEqual(await audit(page), []);

  await page.getByRole("button", { name: "Edit queued message: 5 words" }).focus();
  for (const [key, order] of [
    ["Alt+ArrowUp", ["3 words", "5 words", "4 words"]],
    ["Alt+ArrowUp", ["5 words", "3 words", "4 words"]],
    ["Alt+ArrowDown", ["3 words", "5 words", "4 words"]],
  ]) {
    await page.keyboard.press(key);
    await waits(...order);
  }
  await page.keyboard.press("Enter");
  await page.keyboard.press("ControlOrMeta+A");
  await page.keyboard.type("6 words");
  await page.keyboard.press("Enter");
  await waits("3 words", "6 words", "4 words");
  await becomes(() => queued(other).allInnerTexts(), ["3 words", "6 words", "4 words"]);

  await say(page, "/queue pause");
  await page.getByText("paused").waitFor();
  await page.getByRole("button", { name: "Actions for queued message: 4 words", exact: true }).press("Enter");
  await page.keyboard.press("Enter");
  await until(async () => (await answers(page).count()) === 2, "it was not sent");
  await idle(server, id);
  await waits("3 words", "6 words");
  await button(other, "Resume queue").click();
  await until(async () => (await answers(page).count()) === 4, "the queue did not run");
  for (const window of [page, other]) {
    await until(async () => (await queued(window).count()) === 0, "the queue is empty");
    await said(window, [ENDLESS, "4 words", "3 words", "6 words"]);
  }
});

test("a queued turn that starts is attached to by itself", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/long");
  const page = await openSession(server, id);
  await prompt(server, id, "40");
  await atLeast(page, 1);
  await prompt(server, id, ENDLESS);
  await until(async () => (await answers(page).count()) === 2, "the second did not start");
  const early = await atLeast(page, 3);
  const later = await atLeast(page, early.length + 5);
  assertBegins(early, later, "it goes on");
  await button(page, "Stop").click();
  await idle(server, id);
  await agrees(page, await storedWords(server, id));
});

test("a server that is killed while it writes is said to be away, and is back by itself with exactly what was stored", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/long");
  const context = await newContext();
  await noteDrawings(context);
  const page = await openSession(server, id, { context });
  page.allow(AWAY);
  await prompt(server, id, ENDLESS);
  await atLeast(page, 10);
  await server.kill9();
  await banner(page).waitFor();
  const seen = await shownWords(page);
  const streams = [];
  page.on("request", (request) => request.url().includes("/stream") && streams.push(request.url()));
  await server.start();
  await banner(page).waitFor({ state: "detached" });
  const stored = await storedWords(server, id);
  assertBegins(seen, stored, "every word that was seen is stored");
  await agrees(page, stored);
  await newestEnd(page).getByText("Interrupted: the server stopped during this response.").waitFor();
  assert.match(streams.at(-1), /\/stream\?after=\w+%3A\d+$/);
  (await drawn(page)).forEach((words, index, all) => assert.ok(words.length >= (all[index - 1]?.length ?? 0), `drawing ${index} has less than the one before`));
  await button(page, "Try again").click();
  await until(async () => (await status(server, id)).state === "busy", "it did not go on");
  await until(async () => (await shownWords(page)).length > 0, "nothing new is shown");
  await button(page, "Stop").click();
  await idle(server, id);
  await agrees(page, await storedWords(server, id));
});

test("a server that is restarted in good order while it writes is back by itself with exactly what was stored", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/long");
  const windows = await twoWindows(server, id);
  for (const window of windows) window.allow(AWAY);
  await prompt(server, id, ENDLESS);
  for (const window of windows) await atLeast(window, 5);
  await server.restart();
  for (const window of windows) {
    await newestEnd(window).getByText("Stopped. The server was shut down.").waitFor();
    await button(window, "Continue").waitFor();
    await banner(window).waitFor({ state: "detached" });
    await agrees(window, await storedWords(server, id));
  }
  await inStep(windows);
  await say(windows[0], "7 more");
  for (const window of windows) await completed(server, window, id, 7);
});

const LONG_WITH_CALL = `
import asyncio
from pathlib import Path

import clew
from clew.testing.scripted import FakeProviders, Piece, ScriptedModel, call, say
from clew.transcript import chunk as c


class Until(asyncio.Event):
    """Waits until a file is there."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    async def wait(self):
        while not Path(self.name).exists():
            await asyncio.sleep(0.02)


def long(ids):
    yield c.TextStart("long")
    for part in ("called", "later"):
        for number in range(300):
            yield c.TextDelta("long", f"{part}{number} ")
        yield Until(part)
    yield c.TextDelta("long", "end")
    yield c.TextEnd("long")


COMMAND = "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo gone"
SCRIPT = [[say(" ".join(f"first{number}" for number in range(100))), call("bash", {"command": COMMAND})], Piece(long)]


def open_engine(*words, **options):
    return clew.open(*words, **{**options, "providers": FakeProviders(ScriptedModel(SCRIPT, otherwise=say("A title")))})
`;

test("a stream that is cut in a long answer is continued: each event comes once, and nothing is drawn again", async () => {
  const server = await startServer({ opens: LONG_WITH_CALL });
  const proxy = await startProxy(server);
  const { id } = await newSession(server, "test/model", { workspace_root: server.folder, title: "Cut" });
  await server.call("PUT", `/api/sessions/${id}/permissions`, { rules: [{ permission: "bash", pattern: "*", action: "allow" }] });
  const context = await newContext({ height: 400 });
  await noteDrawings(context);
  const page = await openSession(proxy, id, { context });
  page.allow(AWAY);
  await say(page, "a long one");
  const thread = page.getByRole("region", { name: "Messages" });
  const stored = (count) => until(async () => (await storedWords(server, id)).length === count, `${count} words are not stored`);
  /** Cut, let the model go on until so many words are stored, and come back. */
  const cutUntil = async (file, count) => {
    proxy.cut();
    await banner(page).waitFor();
    await writeFile(join(server.folder, file), "");
    await stored(count);
    proxy.restore();
    await hurry(page);
    await agrees(page, await storedWords(server, id));
  };
  // In the call, and in the text after it.
  await page.locator("[data-tool=bash]").getByRole("log").getByText("begun").waitFor();
  await cutUntil("go", 400);
  await thread.evaluate((scroller) => scroller.scrollTo(0, 0));
  await button(page, "Jump to the end").waitFor();
  await cutUntil("called", 700);
  assert.equal(await thread.evaluate((scroller) => scroller.scrollTop), 0);
  await writeFile(join(server.folder, "later"), "");
  const whole = await completed(server, page, id, 701);
  await button(page, "Send").waitFor();

  const texts = await drawn(page);
  texts.forEach((words, index) => {
    assertBegins(words, whole, `drawing ${index}`);
    assert.ok(words.length >= (texts[index - 1]?.length ?? 0), `drawing ${index} has less than the one before`);
  });
  const streams = proxy.exchanges.filter(({ asked }) => asked.includes("/api/chat")).map(({ asked, answered }) => ({ asked, events: eventsOf(answered) }));
  const follows = `GET /api/chat/${id}/stream?after=${encodeURIComponent(streams[0].events[0].message)}%3A`;
  assert.ok(streams.length >= 3 && streams.slice(1).every(({ asked }) => asked.startsWith(follows)), streams.map(({ asked }) => asked).join("\n"));
  const received = [];
  for (const { asked, events } of streams) {
    // What was on its way when the connection was cut comes again.
    const after = Number(/after=.*%3A(\d+)$/.exec(asked)?.[1] ?? 0);
    while (received.length > 0 && received.at(-1).number > after) received.pop();
    assert.equal(received.at(-1)?.number ?? 0, after, asked);
    received.push(...events);
  }
  assert.deepEqual(received.map(({ number }) => number), received.map((_, index) => index + 1), "one after the other, each once");
  assert.equal(received.filter(({ chunk }) => chunk.type === "start" || chunk.type === "data-reset").length, 1);
  const deltas = received.filter(({ chunk }) => chunk.type === "text-delta").map(({ chunk }) => chunk.delta);
  assert.deepEqual(deltas.join("").split(/\s+|(?<=first99)/).filter(Boolean), whole);
});

/** The numbered events of a chat stream: what a transient chunk tells is in none. */
function eventsOf(text) {
  return [...text.matchAll(/^id: (.+):(\d+)\ndata: (.*)$/gm)].map(([, message, number, data]) => ({ message, number: Number(number), chunk: JSON.parse(data) }));
}

test("a message that was typed and not sent survives a reload and a restart of the server", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/echo");
  const page = await openSession(server, id);
  page.allow(AWAY);
  const text = "a thought,\nnot finished ";
  await composer(page).fill(text);
  await page.reload();
  await composer(page).waitFor();
  await typed(page, text);
  await server.kill9();
  await banner(page).waitFor();
  await typed(page, text);
  await composer(page).press("Control+End");
  await composer(page).pressSequentially("yet");
  await server.start();
  await hurry(page);
  await page.reload();
  await composer(page).waitFor();
  await typed(page, `${text}yet`);
  await composer(page).press("Enter");
  await answers(page).getByText("not finished yet").waitFor();
  await page.reload();
  await answers(page).getByText("not finished yet").waitFor();
  await typed(page, "");
});

test("what is sent while the server is away stays in the field, and can be sent when it is back", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/echo");
  const page = await openSession(server, id);
  page.allow(AWAY);
  await answered(server, id, "before");
  await answers(page).getByText("before").waitFor();
  await server.kill9();
  await say(page, "is anybody there");
  await banner(page).waitFor();
  await typed(page, "is anybody there");
  await server.start();
  await hurry(page);
  await typed(page, "is anybody there");
  await said(page, ["before"]);
  await composer(page).press("Enter");
  await answers(page).getByText("is anybody there").waitFor();
  await idle(server, id);
  const { messages } = await server.call("GET", `/api/sessions/${id}/messages`);
  assert.equal(messages.length, 4);
  await said(page, ["before", "is anybody there"]);
});

test("a window that was there before a restart hears what happens after it", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/echo", { title: "before" });
  const page = await openSession(server, id);
  page.allow(AWAY);
  await server.kill9();
  await banner(page).waitFor();
  await server.start();
  await hurry(page);
  await answered(server, id, "news");
  await answers(page).getByText("news").waitFor();
  await server.call("PATCH", `/api/sessions/${id}`, { title: "after" });
  await until(async () => (await page.title()) === "after · clew", "the new title is not shown");
});

async function twoWindows(server, id) {
  const context = await newContext();
  return [await openSession(server, id, { context }), await openSession(server, id, { context })];
}

function prompt(server, id, text) {
  return server.call("POST", `/api/sessions/${id}/prompt`, { text, model: SLOW, on_busy: "queue" });
}

/** Say it and have it answered, without a window. */
async function answered(server, id, text) {
  const before = (await server.call("GET", `/api/sessions/${id}/messages`)).messages.length;
  await server.call("POST", `/api/sessions/${id}/prompt`, { text });
  await until(async () => (await server.call("GET", `/api/sessions/${id}/messages`)).messages.length > before + 1, "no answer");
  await idle(server, id);
}

/** All windows come to show the same conversation. */
async function inStep(windows) {
  let texts = [];
  await until(
    async () => new Set((texts = await Promise.all(windows.map(conversation)))).size === 1,
    () => `the windows differ:\n${texts.join("\n")}`,
  );
  return texts[0];
}

test("more windows than a browser has connections are all live, and when one goes another listens for them", async () => {
  const server = await startServer();
  const { id } = await newSession(server, "demo/echo");
  const context = await newContext();
  const first = await openSession(server, id, { context });
  const pages = [];
  for (let count = 0; count < 7; count += 1) pages.push(await openSession(server, id, { context }));
  await say(pages[6], "to all of them");
  for (const page of [first, ...pages]) await said(page, ["to all of them"]);
  await first.close();
  await server.call("POST", `/api/sessions/${id}/prompt`, { text: "and after the first has gone" });
  for (const page of pages) await said(page, ["to all of them", "and after the first has gone"]);
  const { log } = server;
  assert.ok((log.match(/path=\/api\/events status=200/g) ?? []).length <= 1, "one stream ended: the first window's");
});
