/** Work that is alive: what runs tells how far it is, and the same after a reload; turns stand apart. */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { audit, startServer, test } from "./kit.mjs";
import { composer, messagesOf, newSession, openSession, settled, until } from "./scenes.mjs";
import { say } from "./talk.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));

test("a running tool counts its seconds, and says how long it took when it has ended, after a reload too", async () => {
  const server = await sharedServer();
  const root = join(server.folder, "seconds");
  await mkdir(root);
  const id = await newSession(server, "Seconds", "demo/tools", { workspace_root: root });
  await server.call("PUT", `/api/sessions/${id}/permissions`, { rules: [{ permission: "bash", pattern: "*", action: "allow" }] });
  const page = await openSession(server, id);
  // It ends when the file is there.
  await say(page, "!bash echo begun; while [ ! -e go ]; do sleep 0.1; done; exit 3");
  const card = page.locator("[data-tool=bash]");
  const counted = async () => {
    const [, minutes = 0, seconds = 0] = /· (?:(\d+) min )?(\d+) s/.exec(await card.textContent()) ?? [];
    return 60 * Number(minutes) + Number(seconds);
  };
  await until(async () => (await counted()) >= 1, "no seconds");
  await page.reload();
  await until(async () => (await counted()) >= 2, "no seconds after a reload");
  await card.getByRole("log").getByText("begun").waitFor();
  assert.deepEqual(await audit(page), []);
  await writeFile(join(root, "go"), "");
  // However long the way here took.
  const ended = card.getByText(/^exit code 3 · (\d+\.\d s|\d+ min \d+ s)$/);
  await ended.waitFor();
  await page.reload();
  await ended.waitFor();
  await say(page, "next");
  await settled(server, id);
  await page.getByRole("article", { name: "Assistant" }).getByText("next").waitFor();
  // A line between turns, a mark between steps.
  assert.equal(await page.locator("[data-row] > hr").count(), 1);
  await page.getByRole("separator", { name: "Step 2" }).waitFor();
});

test("a subagent shows what it says and took in the call that started it, and leads to all of it", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "Subagent", "demo/tools:slow");
  await server.call("PUT", `/api/sessions/${id}/permissions`, { rules: [{ permission: "task", pattern: "*", action: "allow" }] });
  const page = await openSession(server, id);
  // So long that it ends only when it is told to.
  await say(page, `!task ${Array.from({ length: 6000 }, (_, number) => `word${number}`).join(" ")}`);
  const child = page.getByRole("group", { name: "Subagent" }).last();
  await child.getByText(/word2\d/).waitFor();
  await page.reload();
  await child.getByText(/word\d+/).waitFor();
  assert.deepEqual(await audit(page), []);
  await server.call("POST", `/api/sessions/${id}/abort`);
  await settled(server, id);
  await say(page, "!task find the thread");
  await child.getByText(/^1 step · [\d.]+k? tokens$/).waitFor();
  // That much is known before its call is over.
  await settled(server, id);
  const [, call] = (await messagesOf(server, id)).flatMap(({ parts }) => parts).filter(({ type }) => type === "tool-task");
  await child.getByRole("link", { name: "Open the subagent’s session" }).click();
  await until(async () => (await page.evaluate(() => location.hash)) === `#/s/${call.output.session_id}`, "not opened");
  await page.getByRole("group", { name: "Subagent" }).first().waitFor({ state: "detached" });
  await page.getByRole("article", { name: "Assistant" }).getByText("find the thread").waitFor();
});

test("a subagent that was stopped is still led to by the call that started it", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "Stopped subagent", "demo/tools:slow");
  await server.call("PUT", `/api/sessions/${id}/permissions`, { rules: [{ permission: "task", pattern: "*", action: "allow" }] });
  const page = await openSession(server, id);
  // So long that it ends only when it is told to.
  await say(page, `!task ${Array.from({ length: 6000 }, (_, number) => `word${number}`).join(" ")}`);
  const child = page.getByRole("group", { name: "Subagent" });
  await child.getByText(/word2\d/).waitFor();
  await server.call("POST", `/api/sessions/${id}/abort`);
  await settled(server, id);
  // The next turn gives the call its end.
  await say(page, "next");
  await settled(server, id);
  await page.reload();
  await page.getByRole("article", { name: "Assistant" }).getByText("next").waitFor();
  const [call] = (await messagesOf(server, id)).flatMap(({ parts }) => parts).filter(({ type }) => type === "tool-task");
  assert.equal(call.state, "output-error");
  const { sessions } = await server.call("GET", `/api/sessions?parent=${id}&kind=subagent`);
  await child.getByText(/^1 step$/).waitFor();
  await child.getByRole("link", { name: "Open the subagent’s session" }).click();
  await until(async () => (await page.evaluate(() => location.hash)) === `#/s/${sessions[0].id}`, "not opened");
});

const HELD_SUMMARY = `
import asyncio
from pathlib import Path

import clew


async def wait(plan):
    while not Path("go").exists():
        await asyncio.sleep(0.05)


def open_engine(*words, **options):
    return clew.open(*words, hooks={"before_compaction": wait}, **options)
`;

test("a summary in the making says of how many turns, after a reload too, and can be stopped", async () => {
  const server = await startServer({ opens: HELD_SUMMARY });
  const id = await newSession(server, "Held");
  for (let number = 1; number <= 4; number += 1) {
    await server.call("POST", `/api/sessions/${id}/prompt`, { text: `${number} ${"word ".repeat(300)}` });
    await settled(server, id);
  }
  const page = await openSession(server, id);
  await say(page, "/compact");
  const told = page.getByText(/^Summarising \d earlier turns?…$/);
  await told.waitFor();
  assert.deepEqual(await audit(page), []);
  await page.reload();
  await told.waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await told.waitFor({ state: "detached" });
  await writeFile(join(server.folder, "go"), "");
  await say(page, "/compact");
  await page.getByRole("button", { name: /^Summarised \d earlier turns?/ }).waitFor();
  await told.waitFor({ state: "detached" });
});

/** The last that is heard of what happens is that something runs. */
function hearNoEnd() {
  const real = window.fetch;
  window.fetch = async (input, init) => {
    const answer = await real(input, init);
    if (!String(input.url ?? input).includes("/api/events")) return answer;
    let over = false;
    let begun = "";
    const hear = (text, out) => {
      const frames = (begun + text).split(/(?<=\n\n)/);
      begun = frames.at(-1).endsWith("\n\n") ? "" : frames.pop();
      for (const frame of frames) {
        if (!over) out.enqueue(frame);
        over ||= frame.includes('"state":"busy"');
      }
    };
    const heard = answer.body.pipeThrough(new TextDecoderStream()).pipeThrough(new TransformStream({ transform: hear }));
    return new Response(heard.pipeThrough(new TextEncoderStream()), answer);
  };
}

test("a change of one's words waits for an answer that is over and still being read", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "Late stream");
  const page = await openSession(server, id, { before: hearNoEnd });
  await composer(page).waitFor();
  await page.evaluate(() => {
    const real = window.fetch;
    window.fetch = async (input, init) => {
      const answer = await real(input, init);
      if (!String(input.url ?? input).includes("/api/chat")) return answer;
      // All of it has come, and its end has not.
      let letEnd;
      const held = new Promise((resolve) => (letEnd = resolve));
      let text = "";
      const holdEnd = async (more, out) => {
        text += more;
        const end = text.indexOf("data: [DONE]");
        out.enqueue(end < 0 ? more : more.slice(0, Math.max(0, more.length - (text.length - end))));
        if (end < 0) return;
        window.endStream = letEnd;
        await held;
        out.enqueue(text.slice(end));
      };
      const body = answer.body.pipeThrough(new TextDecoderStream()).pipeThrough(new TransformStream({ transform: holdEnd }));
      return new Response(body.pipeThrough(new TextEncoderStream()), answer);
    };
  });
  await say(page, "one");
  await page.getByRole("article", { name: "Assistant" }).getByText("one").waitFor();
  await settled(server, id);
  await until(() => page.evaluate(() => "endStream" in window), "the stream is not held");
  await page.getByRole("button", { name: "Stop" }).waitFor();
  await composer(page).press("ArrowUp");
  await page.getByText("Editing your last message").waitFor();
  await composer(page).fill("two");
  await page.keyboard.press("Enter");
  await page.evaluate(() => window.endStream());
  await page.getByRole("article", { name: "Assistant" }).getByText("two").waitFor();
  assert.equal(await page.getByText("Something is running").count(), 0);
  await page.evaluate(() => window.endStream());
});
