/** The states a session comes to, made over the API, and the ways a page is brought to show them. */
import { openPage, PATIENCE_MS } from "./kit.mjs";

/** `demo/long:slow` as the API takes it. */
export function model(name) {
  const [, provider_id, model_id, variant = null] = /^([^/]+)\/([^:]+)(?::(.+))?$/.exec(name);
  return { provider_id, model_id, variant };
}

export async function newSession(server, title, name = "demo/echo", more = {}) {
  return (await server.call("POST", "/api/sessions", { model: name, title, workspace_root: server.folder, ...more })).id;
}

/** Ask something over the API and wait until it is over, or waits for a word. */
export async function say(server, id, text, name) {
  await server.call("POST", `/api/sessions/${id}/prompt`, { text, ...(name ? { model: model(name) } : {}) });
  return settled(server, id);
}

/** Ask, and do not wait. */
export async function begin(server, id, text, name) {
  await server.call("POST", `/api/sessions/${id}/prompt`, { text, model: model(name) });
}

export async function settled(server, id) {
  return until(async () => {
    const status = await server.call("GET", `/api/sessions/${id}/status`);
    return !["busy", "retrying"].includes(status.state) && status;
  }, "the session did not come to rest");
}

export async function messagesOf(server, id) {
  return (await server.call("GET", `/api/sessions/${id}/messages`)).messages;
}

/** What `look` gives as soon as it is something. */
export async function until(look, what) {
  for (const end = Date.now() + PATIENCE_MS; ; ) {
    const found = await look();
    if (found) return found;
    if (Date.now() > end) throw new Error(typeof what === "function" ? what() : what);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** A page on a session, drawn to its last message. */
export async function openSession(server, id, options = {}) {
  const page = await openPage(server, options);
  await goTo(page, `#/s/${id}`);
  return page;
}

export async function goTo(page, hash) {
  await page.getByText("Connected").waitFor({ state: "attached" });
  await page.evaluate((given) => (location.hash = given), hash);
}

export const composer = (page) => page.getByRole("main").getByRole("textbox", { name: "Message" });
export const thread = (page) => page.getByRole("main").getByRole("region", { name: "Messages" });

/** Until the thread has drawn its last message and nothing in it moves any more; where the end may `grow`, nothing in sight. */
export async function atRest(page, { grow = false } = {}) {
  await page.getByRole("article").last().waitFor();
  let before = "";
  let same = 0;
  await until(async () => {
    const now = await thread(page).evaluate(async (scroller, grows) => {
      await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
      const rows = [...scroller.querySelectorAll("[data-row]")].map((row) => [row.getBoundingClientRect().top, getComputedStyle(row.parentElement).visibility]);
      return JSON.stringify([scroller.scrollTop, grows || scroller.scrollHeight, rows]);
    }, grow);
    same = now === before ? same + 1 : 0;
    before = now;
    return same >= 5;
  }, "the thread does not come to rest");
}

/** What of the page could be scrolled sideways, and by how much. A code block or a table may, within itself. */
export async function sideways(page) {
  return page.evaluate(() => {
    const found = [document.documentElement, document.body, ...document.querySelectorAll("main, section, aside, header, [aria-label=Messages], [role=tabpanel]")];
    return found
      .filter((element) => element.clientWidth > 0 && element.scrollWidth > element.clientWidth)
      .map((element) => `${element.tagName} ${element.getAttribute("aria-label") ?? element.id} by ${element.scrollWidth - element.clientWidth}`);
  });
}
