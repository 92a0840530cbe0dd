/** What the cases about a conversation share: opening one, and comparing what is shown with what is stored. */
import assert from "node:assert/strict";
import { openPage, PATIENCE_MS } from "./kit.mjs";

/** The page's word for the server being away: what a browser writes about requests that nobody answered. */
export const AWAY = /net::ERR_|Failed to load resource|ERR_CONNECTION/;

/** Waits until `holds` gives something true, and gives it on. */
export async function until(holds, what) {
  const end = performance.now() + PATIENCE_MS;
  for (;;) {
    const held = await holds();
    if (held) return held;
    if (performance.now() > end) assert.fail(typeof what === "function" ? what() : what);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export function newSession(server, model, more = {}) {
  return server.call("POST", "/api/sessions", { model, ...more });
}

/** A window on a session: the address with the token first, as a person has it, then the session's own. */
export async function openSession(server, id, options = {}) {
  const page = await openPage(server, options);
  // Not before the page has taken the token.
  await page.waitForURL(`${server.url}/`);
  await page.goto(`${server.url}/#/s/${id}`);
  await composer(page).waitFor();
  return page;
}

export const composer = (page) => page.getByRole("textbox", { name: "Message", exact: true });
export const answers = (page) => page.getByRole("article", { name: "Assistant" });
/** How the newest turn ended, where it did not end well. */
export const newestEnd = (page) => page.getByRole("main").locator("[data-newest-end]");
export const own = (page) => page.getByRole("article", { name: "You" });
export const button = (page, name) => page.getByRole("button", { name, exact: true });
export const banner = (page) => page.getByText("Reconnecting…");

/** What was said comes to stand there, all of it and nothing else but its time. A row that was not measured yet has no text. */
export async function said(page, texts) {
  let shown;
  await until(async () => same((shown = (await own(page).allInnerTexts()).map((text) => text.replace(/\s+\d\d:\d\d$/, ""))), texts), () => `said is ${JSON.stringify(shown)}, not ${JSON.stringify(texts)}`);
}

export async function say(page, text) {
  await composer(page).fill(text);
  await composer(page).press("Enter");
}

/** The words of the newest answer as they stand on the page; empty when there are none yet. */
export async function shownWords(page) {
  return wordsOf((await answers(page).last().getByRole("paragraph").allInnerTexts().catch(() => [])).join(" "));
}

/** The words of the newest answer that the store has. */
export async function storedWords(server, id) {
  const { messages } = await server.call("GET", `/api/sessions/${id}/messages`);
  const last = messages.findLast((message) => message.role === "assistant");
  return wordsOf((last?.parts ?? []).filter(({ type }) => type === "text").map(({ text }) => text).join(" "));
}

const wordsOf = (text) => text.split(/\s+/).filter(Boolean);

/** Waits for so many words of the newest answer. */
export async function atLeast(page, count) {
  return until(
    async () => {
      const words = await shownWords(page);
      return words.length >= count && words;
    },
    `no ${count} words came`,
  );
}

/** Waits until an answer of so many words is over, and finds exactly what is stored on the page. */
export async function completed(server, page, id, count) {
  let stored = [];
  await until(async () => (stored = await storedWords(server, id)).length === count, () => `${stored.length} words are stored, not ${count}`);
  await idle(server, id);
  await agrees(page, stored);
  return stored;
}

/** The page comes to show these words as its newest answer, and no others. */
export async function agrees(page, stored) {
  let shown = [];
  await until(async () => same((shown = await shownWords(page)), stored), () => `the page shows ${shown.length} words: ${shown.join(" ")}\nstored are ${stored.length}: ${stored.join(" ")}`);
}

export async function idle(server, id) {
  await until(async () => ["idle", "error"].includes((await status(server, id)).state), "the run did not end");
}

export function status(server, id) {
  return server.call("GET", `/api/sessions/${id}/status`);
}

export const same = (one, other) => one.length === other.length && one.every((word, index) => word === other[index]);

/** `part` is the beginning of `whole`: nothing left out, nothing doubled. */
export function assertBegins(part, whole, when) {
  assert.deepEqual(part, whole.slice(0, part.length), when);
}

/**
 * Notes every text that the newest answer has on the pages of a context, from the first drawing on, also after a
 * reload. They are asked for with `drawn(page)`.
 */
export async function noteDrawings(context) {
  await context.addInitScript(() => {
    window.drawn = [];
    const look = () => {
      const articles = document.querySelectorAll('article[aria-label="Assistant"]');
      const text = [...(articles[articles.length - 1]?.querySelectorAll("p[dir]") ?? [])].map((line) => line.textContent).join(" ");
      if (text !== (window.drawn.at(-1) ?? "")) window.drawn.push(text);
    };
    new MutationObserver(look).observe(document, { childList: true, subtree: true, characterData: true });
  });
}

export async function drawn(page) {
  return (await page.evaluate(() => window.drawn)).map(wordsOf);
}

/** Says that the server is back before the page finds out by itself. */
export async function hurry(page) {
  await button(page, "Retry now").click({ timeout: 1000 }).catch(() => undefined); // it may have been faster
  await banner(page).waitFor({ state: "detached" });
}

/** What every window shows: the messages, word by word, with what stands between them. */
export async function conversation(page) {
  const text = (await page.getByRole("region", { name: "Messages" }).innerText()).replace(/\s+/g, " ").trim();
  // How long it thought is told only by a window that saw it.
  return text.replace(/Thought for (a moment|\d\S* \w+)/g, "Thought");
}

/** The field comes to hold this text. */
export async function typed(page, text) {
  let held;
  await until(async () => (held = await composer(page).inputValue()) === text, () => `the field holds ${JSON.stringify(held)}, not ${JSON.stringify(text)}`);
}
