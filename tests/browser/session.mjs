/** What cases do to sessions: made and filled over the API, opened and read in the page. */
import assert from "node:assert/strict";
import { openPage, PATIENCE_MS } from "./kit.mjs";

/** A session in the server's own folder; `rules` are its own permissions. */
export async function begin(server, { model = "demo/echo", title, metadata, rules } = {}) {
  const made = { model, title, metadata, workspace_root: server.folder };
  const { id } = await server.call("POST", "/api/sessions", made);
  if (rules) await server.call("PUT", `/api/sessions/${id}/permissions`, { rules });
  return id;
}

/** Say each, one after the other, and wait until it is answered. */
export async function say(server, id, ...texts) {
  for (const text of texts) {
    await server.call("POST", `/api/sessions/${id}/prompt`, { text });
    await rests(server, id);
  }
}

/** Until nothing runs in the session; its status then. */
export async function rests(server, id) {
  return until(async () => {
    const status = await server.call("GET", `/api/sessions/${id}/status`);
    return status.state !== "busy" && status.state !== "retrying" && status;
  }, "the session to rest");
}

/** The messages of the line as they are stored. */
export async function stored(server, id, query = "") {
  return (await server.call("GET", `/api/sessions/${id}/messages${query}`)).messages;
}

/** The text of a stored message. */
export function textOf(message) {
  return message.parts.filter((part) => part.type === "text").map((part) => part.text).join("\n\n");
}

export async function openSession(server, id, options = {}) {
  const page = await openPage(server, options);
  await goTo(page, id);
  return page;
}

export async function goTo(page, id) {
  await page.evaluate((hash) => (window.location.hash = hash), `#/s/${id}`);
  await thread(page).waitFor();
  await page.getByRole("textbox", { name: "Message", exact: true }).first().waitFor();
}

/** The session that is open, by the page's address. */
export function openId(page) {
  return /#\/s\/([\w-]+)/.exec(page.url())?.[1] ?? null;
}

/** The conversation in the middle; `beside` is the one on its right. */
export function pane(page, beside = false) {
  return beside ? page.getByRole("region", { name: "Side conversation" }) : page.getByRole("main", { name: "Conversation" });
}

export function thread(page) {
  return pane(page).getByRole("region", { name: "Messages" });
}

export function composer(page) {
  return pane(page).getByRole("textbox", { name: "Message", exact: true });
}

export function banner(page) {
  return thread(page).getByRole("group", { name: "Undone messages" });
}

/** The line of a session in the list. */
export function row(page, title) {
  const name = page.locator("bdi").getByText(title, { exact: true });
  return page.getByRole("list", { name: "Session list" }).locator("li[data-row]").filter({ has: name });
}

/** A message by its whole text. */
export function message(scope, who, text) {
  return scope.getByRole("article", { name: who, exact: true }).filter({ has: scope.page().getByText(text, { exact: true }) });
}

/** Who says what in it, in the order it is read. */
export async function shown(scope) {
  return scope.getByRole("article").evaluateAll((all) =>
    all.map((one) => {
      const said = [...one.querySelectorAll(".clew-prose, .whitespace-pre-wrap")].map((text) => text.innerText.trim());
      return [one.getAttribute("aria-label"), said.join("\n\n")];
    }),
  );
}

/** The same of stored messages. */
export function told(messages) {
  return messages.map((one) => [one.role === "user" ? "You" : "Assistant", textOf(one).trim()]);
}

/** Send what is written in the composer, as a person does. */
export async function send(page, text) {
  await composer(page).fill(text);
  await composer(page).press("Enter");
}

/** Ask again until it holds; what it gave. */
export async function until(holds, what) {
  const end = performance.now() + PATIENCE_MS;
  for (;;) {
    const found = await holds();
    if (found) return found;
    if (performance.now() > end) assert.fail(`waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Compare until it is the same; the last difference when it never is. */
export async function becomes(read, expected) {
  const end = performance.now() + PATIENCE_MS;
  for (;;) {
    const found = await read();
    try {
      assert.deepEqual(found, expected);
      return;
    } catch (error) {
      if (performance.now() > end) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
