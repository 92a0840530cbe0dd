/** Typing approves nothing and is never lost: requests take no focus, and what is typed anywhere is in the composer. */
import assert from "node:assert/strict";
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { openPage, startServer, test } from "./kit.mjs";
import { AWAY, button, composer, newSession, openSession, status, typed, until } from "./talk.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));

const request = (page) => page.getByRole("group", { name: /^Approve this/ });
const SENTENCE = "please do not do that";
/** A person's pace. */
const PACE = { delay: 30 };

/** Until its buttons may be pressed. */
const settled = (page) => page.locator('[data-decision="once"]:not([aria-disabled])').first().waitFor();
/** Until keys answer it, which is when it shows them. */
const keyed = (page) => page.locator("[data-keys]").waitFor();

async function waitingSession(server, { title, count = 1, name = "ran" } = {}) {
  const folder = join(server.folder, `typing ${title}`);
  await mkdir(folder, { recursive: true });
  const { id } = await newSession(server, "demo/tools", { title, workspace_root: folder });
  await ask(server, id, Array.from({ length: count }, (_, n) => `!bash touch ${name}${n}`).join("\n"));
  return { id, folder };
}

async function ask(server, id, text) {
  await server.call("POST", `/api/sessions/${id}/prompt`, { text });
  return until(async () => (await status(server, id)).waiting?.length && status(server, id), "nothing waits");
}

/** Everything that would tell of an approval: decisions, answers, rules, and what the commands would have left. */
async function approvals(server, { id, folder }) {
  const { messages } = await server.call("GET", `/api/sessions/${id}/messages?view=all&limit=500`);
  const parts = messages.flatMap((message) => message.parts);
  const rules = [];
  for (const scope of ["session", "project"]) {
    rules.push(...(await server.call("GET", `/api/rules?scope=${scope}&session=${id}`)).rules.filter((rule) => rule.action === "allow"));
  }
  return {
    approved: parts.filter((part) => part.approval?.approved).map((part) => part.input),
    answered: parts.filter((part) => part.type === "tool-question" && part.state === "output-available").map((part) => part.output),
    rules: rules.map((rule) => rule.pattern),
    files: await readdir(folder),
  };
}

const NONE = { approved: [], answered: [], rules: [], files: [] };

test("a sentence typed after a waiting session was opened, reloaded or asked is in the composer and approves nothing", async () => {
  const server = await sharedServer();
  const waiting = await waitingSession(server, { title: "from the list" });
  const page = await openPage(server);
  await page.getByRole("link", { name: /from the list/ }).click();
  await settled(page);
  await page.keyboard.type(SENTENCE, PACE);
  await typed(page, SENTENCE);
  await page.reload();
  await settled(page);
  await page.keyboard.type(", ever", PACE);
  await typed(page, `${SENTENCE}, ever`);
  assert.deepEqual(await approvals(server, waiting), NONE);

  // It arrives where the composer is empty.
  const { id } = await newSession(server, "demo/tools", { workspace_root: waiting.folder });
  const other = await openSession(server, id);
  await ask(server, id, "!bash touch arrived");
  await settled(other);
  await other.keyboard.type(SENTENCE, PACE);
  await typed(other, SENTENCE);
  await other.keyboard.press("Enter");
  await other.getByRole("list", { name: "Queued messages" }).getByText(SENTENCE).waitFor();
  assert.equal((await status(server, id)).waiting.length, 1);
  assert.deepEqual(await approvals(server, { id, folder: waiting.folder }), NONE);
});

test("a sentence typed at a request in focus is in the composer, whatever it begins with", async () => {
  const server = await sharedServer();
  const waiting = await waitingSession(server, { title: "clicked" });
  const page = await openSession(server, waiting.id);
  let text = "";
  for (const sentence of ["yes but no", "y u do that", "sure? no", "please stop", "p.s. no", "no", "Yes", "what is it", " and"]) {
    await settled(page);
    await request(page).getByText("Needs your approval").click();
    await keyed(page);
    await page.keyboard.type(sentence, PACE);
    text += sentence;
    await typed(page, text);
  }
  assert.deepEqual(await approvals(server, waiting), NONE);
  // A text that was begun at a request which is answered elsewhere is in the composer, too.
  await request(page).getByText("Needs your approval").click();
  await keyed(page);
  await page.keyboard.press("y");
  assert.equal(await page.locator("[data-request]").evaluate((one) => one.contains(document.activeElement)), true);
  const [{ approval_id }] = (await status(server, waiting.id)).waiting;
  await server.call("POST", `/api/sessions/${waiting.id}/approvals/${approval_id}`, { decision: "deny", reason: "elsewhere" });
  await request(page).waitFor({ state: "detached" });
  await page.keyboard.type("es");
  await typed(page, `${text}yes`);
  assert.deepEqual(await approvals(server, waiting), NONE);
});

test("a letter selects an answer and Enter gives it, only at the request in focus, and a rule takes two keys", async () => {
  const server = await sharedServer();
  const waiting = await waitingSession(server, { title: "keys", count: 2 });
  const page = await openSession(server, waiting.id);
  await settled(page);
  // No key is shown while the focus is in the composer.
  assert.equal(await page.locator("[data-keys]").count(), 0);
  const hint = (index) => request(page).nth(index).evaluate((element) => getComputedStyle(element.querySelector("[data-key]"), "::after").visibility);
  assert.deepEqual([await hint(0), await hint(1)], ["hidden", "hidden"]);
  await page.keyboard.press("Shift+Tab");
  for (let tabs = 0; !(await page.locator("[data-keys]").count()); tabs += 1) {
    assert.ok(tabs < 40, "no request is reached by Tab");
    await page.keyboard.press("Shift+Tab");
    await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  }
  assert.deepEqual([await hint(0), await hint(1)], ["hidden", "visible"]);
  const second = request(page).nth(1);
  // Keys that are held, come with a modifier or are part of a composition do nothing.
  const acts = [["Control+y"], ["Alt+p"], ["Meta+s"]];
  for (const [keys] of acts) await page.keyboard.press(keys);
  await second.evaluate((element) => element.dispatchEvent(new KeyboardEvent("keydown", { key: "y", isComposing: true, bubbles: true, cancelable: true })));
  assert.equal(await second.locator('[data-key="⏎"]').count(), 0);
  assert.equal(await second.evaluate((element) => element.contains(document.activeElement)), true);
  // By Tab, and held down: it is selected, and not given.
  await button(second, "Always in this project").focus();
  for (let repeats = 0; repeats < 5; repeats += 1) await page.keyboard.down("Enter");
  await page.keyboard.up("Enter");
  await second.getByText("Press Enter to confirm: Always in this project").waitFor();
  assert.deepEqual(await approvals(server, waiting), NONE);
  // Escape leaves it.
  await page.keyboard.press("Escape");
  assert.equal(await composer(page).evaluate((field) => field === document.activeElement), true);
  await button(second, "Deny").focus();
  await keyed(page);
  await page.keyboard.press("y");
  await page.keyboard.press("Enter");
  await until(async () => (await status(server, waiting.id)).waiting.length === 1, "it was not answered");
  // The next request has to be gone to: the focus is where one writes.
  await until(() => composer(page).evaluate((field) => field === document.activeElement), "the focus is elsewhere");
  await until(async () => (await request(page).count()) === 1, "the answered request is still shown");
  await page.keyboard.press("Enter");
  await request(page).getByText("touch ran0").first().waitFor();
  assert.equal((await status(server, waiting.id)).waiting.length, 1);
  await button(request(page), "Deny").focus();
  await keyed(page);
  await page.keyboard.press("p");
  await page.keyboard.press("Enter");
  await until(async () => (await approvals(server, waiting)).files.length === 2, "both did not run");
  assert.deepEqual((await approvals(server, waiting)).rules, ["touch ran0"]);
  // The keys were answers, and are no text.
  assert.equal(await composer(page).inputValue(), "");
});

test("the reply to an answer comes late and takes no focus from the request that was gone to meanwhile", async () => {
  const server = await sharedServer();
  const waiting = await waitingSession(server, { title: "late reply", count: 2 });
  const page = await openSession(server, waiting.id);
  let release;
  const released = new Promise((resolve) => (release = resolve));
  let replied;
  const done = new Promise((resolve) => (replied = resolve));
  await page.route("**/api/sessions/*/approvals/*", async (route) => {
    const response = await route.fetch();
    await released;
    await route.fulfill({ response });
    replied();
  });
  await settled(page);
  await button(request(page).first(), "Allow once").click();
  await until(async () => (await request(page).count()) === 1, "the answered request is still shown");
  await settled(page);
  await button(request(page), "Allow once").focus();
  await keyed(page);
  release();
  await done;
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  assert.equal(await request(page).evaluate((element) => element.contains(document.activeElement)), true);
});

/** Timers of the page come as late as the case says, as on a machine that is busy with something else. */
const lateTimers = () => {
  const real = window.setInterval;
  window.setInterval = (act, ms, ...more) => real(() => !window.timersHeld && act(...more), ms);
};
const holdTimers = (page, held) => page.evaluate((on) => (window.timersHeld = on), held);

test("the keys of a request that has just moved are answers, as long as they are shown", async () => {
  const server = await sharedServer();
  const waiting = await waitingSession(server, { title: "moved", count: 2 });
  const page = await openSession(server, waiting.id, { before: lateTimers });
  const { waiting: [, second] } = await status(server, waiting.id);
  await button(request(page).first(), "Deny").focus();
  await keyed(page);
  const place = () => button(request(page).first(), "Deny").evaluate((one) => one.getBoundingClientRect().top);
  const before = await place();
  await holdTimers(page, true);
  await server.call("POST", `/api/sessions/${waiting.id}/approvals/${second.approval_id}`, { decision: "once" });
  await until(async () => (await request(page).count()) === 1, "the answered request is still shown");
  await until(async () => (await place()) !== before, "nothing has moved");
  await keyed(page);
  await page.keyboard.press("p");
  await page.keyboard.press("Enter");
  await until(async () => (await approvals(server, waiting)).files.length === 2, "it was not answered");
  assert.deepEqual((await approvals(server, waiting)).rules, ["touch ran0"]);
  assert.equal(await composer(page).inputValue(), "");
});

test("a letter at a request that is out of sight is no text while its keys are shown, and gives nothing until it is seen", async () => {
  const server = await sharedServer();
  const waiting = await waitingSession(server, { title: "out of sight" });
  const page = await openSession(server, waiting.id, { before: lateTimers, height: 400 });
  await button(request(page), "Deny").focus();
  await keyed(page);
  await holdTimers(page, true);
  await page.getByRole("region", { name: "Messages" }).evaluate((list) => list.scrollTo(0, 0));
  await page.keyboard.press("y");
  await request(page).getByText("Press Enter to confirm: Allow once").waitFor({ state: "attached" });
  await page.keyboard.press("Enter");
  assert.equal(await composer(page).inputValue(), "");
  assert.deepEqual(await approvals(server, waiting), NONE);
  // Seen again, and for long enough, it is given.
  await until(async () => {
    await page.keyboard.press("Enter");
    return (await approvals(server, waiting)).files.length === 1;
  }, "it was not answered");
  assert.equal(await composer(page).inputValue(), "");
});

test("a press on buttons that have just come or moved is no answer", async () => {
  const server = await sharedServer();
  const waiting = await waitingSession(server, { title: "in flight", count: 2 });
  const page = await openPage(server, {
    before: () => {
      window.pressOnce = (target) => {
        const at = { bubbles: true, cancelable: true, detail: 1 };
        target.dispatchEvent(new PointerEvent("pointerdown", at));
        target.dispatchEvent(new MouseEvent("click", at));
        target.click();
        window.presses = (window.presses ?? 0) + 1;
      };
      // As soon as they are drawn.
      new MutationObserver(() => {
        for (const one of document.querySelectorAll("[data-request] button")) {
          if (/^Allow/.test(one.textContent) && !one.pressed) window.pressOnce(Object.assign(one, { pressed: true }));
        }
      }).observe(document, { childList: true, subtree: true });
    },
  });
  await page.waitForURL(`${server.url}/`);
  await page.evaluate((id) => (location.hash = `#/s/${id}`), waiting.id);
  await settled(page);
  assert.ok((await page.evaluate(() => window.presses)) >= 3);
  // Moved by something above, in the moment of the press.
  await page.evaluate(() => {
    document.querySelector('main [aria-label="Messages"]').style.paddingTop = "7px";
    for (const one of document.querySelectorAll('[data-decision="once"]')) window.pressOnce(one);
  });
  assert.deepEqual(await approvals(server, waiting), NONE);
  assert.equal((await status(server, waiting.id)).waiting.length, 2);
  // What moves on a slow machine in the moment of the press makes it count for nothing; the next one does.
  await until(async () => {
    // None waits any more if the press before counted late, and this one counted too.
    if (((await status(server, waiting.id)).waiting ?? []).length < 2) return true;
    await settled(page);
    await button(request(page).first(), "Allow once").click();
    return false;
  }, "a press that was aimed at it did not count");
});

/** The page is told that nothing hovers here, as on a desk without a mouse. */
const noHover = () => {
  const real = window.matchMedia.bind(window);
  window.matchMedia = (query) => real(query.replace("(hover: hover)", "not all").replace("(hover: none)", "all"));
};

async function writes(page, begun, more = "x") {
  await page.keyboard.type(more, PACE);
  await typed(page, begun + more);
  await page.keyboard.press("ControlOrMeta+A");
  await page.keyboard.press("Delete");
}

async function focusIsReady(server, options) {
  const { id } = await newSession(server, "demo/echo", { title: "to be opened", workspace_root: server.folder });
  const page = await openPage(server, options);
  await composer(page).waitFor();
  await writes(page, "", "on load");
  await page.evaluate((hash) => (location.hash = hash), `#/s/${id}`);
  await page.getByRole("main", { name: "Conversation", exact: true }).waitFor();
  await writes(page, "", "in a session");
  await page.keyboard.press("Control+j");
  await page.getByRole("main", { name: "New conversation" }).waitFor();
  await writes(page, "", "after Ctrl+J");
  await page.keyboard.type("the first message");
  await page.keyboard.press("Enter");
  await page.getByRole("article", { name: "Assistant" }).waitFor();
  await writes(page, "", "after the first message");
  // The focus nowhere: from the first character, and from the clipboard.
  const leave = () => page.evaluate(() => document.activeElement.blur());
  await leave();
  await writes(page, "", "Écrit de nulle part");
  await leave();
  await page.keyboard.type(" a space first");
  await typed(page, " a space first");
  await page.keyboard.press("ControlOrMeta+A");
  await page.keyboard.press("ControlOrMeta+X");
  await leave();
  await page.keyboard.press("ControlOrMeta+V");
  await typed(page, " a space first");
  await page.getByRole("article", { name: "Assistant" }).click();
  await page.keyboard.type(", and more");
  await typed(page, " a space first, and more");
  return page;
}

test("the composer has the focus wherever one comes, and text typed with the focus nowhere is in it", async () => {
  await focusIsReady(await sharedServer(), {});
});

test("the composer has the focus on a device without hover, too", async () => {
  await focusIsReady(await sharedServer(), { before: noHover });
});

test("on a touch screen the composer has the focus, and its keyboard opens when the field is touched", async () => {
  const page = await focusIsReady(await sharedServer(), { touch: true, width: 820, height: 1100 });
  const state = () => composer(page).evaluate((field) => [field === document.activeElement, field.inputMode]);
  assert.deepEqual(await state(), [true, "none"]);
  await composer(page).tap();
  assert.deepEqual(await state(), [true, ""]);
});

test("a letter typed with the focus on the mode changes no mode and is in the composer", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/echo", { workspace_root: server.folder });
  const page = await openSession(server, id);
  const mode = page.getByRole("combobox", { name: "Mode" });
  await mode.focus();
  await page.keyboard.type("accept nothing");
  await typed(page, "accept nothing");
  assert.equal(await mode.inputValue(), "ask");
});

/** The same sequence for the same seed. */
function random(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const WORDS = ["yes", "yes,", "so", "stop", "sync", "please", "push", "no", "not", "never", "allow", "always", "all", "and", "y", "s", "p", "n", "a", "Y", "N", "1", "2", "42", "do", "that", "why?", "in", "project"];

/** Keys as a person presses them: words, spaces, and now and then Enter or Escape between them. */
function sentence(next) {
  const pick = (list) => list[Math.floor(next() * list.length)];
  const keys = [...pick(WORDS.filter((word) => word.length > 1))];
  for (let words = 2 + Math.floor(next() * 3); words > 0; words -= 1) {
    const between = next();
    keys.push(...(between < 0.12 ? ["Enter"] : between < 0.2 ? ["Escape", " "] : [" "]), ...pick(WORDS));
  }
  return keys;
}

/** How many sentences are typed; CLEW_SENTENCES=100 types as many as a long campaign wants. */
const SENTENCES = Number(process.env.CLEW_SENTENCES ?? 40);

test("sentences are typed while requests come and go: none approves anything, and none is lost", async () => {
  const server = await sharedServer();
  const seed = Number(process.env.CLEW_SEED ?? 28);
  const next = random(seed);
  const sessions = [];
  for (const title of ["first of two", "second of two"]) sessions.push(await waitingSession(server, { title, count: 2, name: title.split(" ")[0] }));
  const page = await openSession(server, sessions[0].id);
  page.allow(AWAY); // a reload cuts off what is being read
  let at = 0;
  let asked = 0;
  const sent = [[], []];

  /** As another window or another person does it; what cannot be done at the moment is left out. */
  const happens = {
    arrive: () => ["!bash touch", '!question {"question": "Go on?", "options": ["yes", "no"]}\n!bash touch'][asked % 2] + ` asked${(asked += 1)}`,
    async elsewhere() {
      const { waiting = [] } = await status(server, sessions[at].id);
      const one = waiting?.[Math.floor(next() * waiting.length)];
      if (one?.approval_id) await server.call("POST", `/api/sessions/${sessions[at].id}/approvals/${one.approval_id}`, { decision: "deny", reason: "elsewhere" });
      else if (one) await server.call("POST", `/api/sessions/${sessions[at].id}/abort`);
    },
    async replaced() {
      await server.call("POST", `/api/sessions/${sessions[at].id}/abort`);
      await happens.asks();
    },
    async asks() {
      await server.call("POST", `/api/sessions/${sessions[at].id}/prompt`, { text: happens.arrive() });
    },
  };
  const now = async () => {
    const dice = next();
    const event = dice < 0.45 ? happens.asks : dice < 0.75 ? happens.elsewhere : happens.replaced;
    await event().catch((error) => assert.match(String(error), /answered 4\d\d/));
  };
  /** Where the person is before they type. */
  const stand = async (dice) => {
    if (dice < 0.2) {
      at = 1 - at;
      await page.getByRole("link", { name: new RegExp(`${["first", "second"][at]} of two`) }).click();
      await page.getByRole("button", { name: new RegExp(`^${["first", "second"][at]} of two.*rename`) }).waitFor();
    } else if (dice < 0.3) {
      await page.reload();
      await composer(page).waitFor();
    } else if (dice < 0.7) {
      // At a request, by a click on it or by Tab, and mostly until it takes keys.
      const text = request(page).first().getByText("Needs your approval");
      if (dice < 0.55) await text.click({ timeout: 1000 }).catch(() => undefined);
      else for (let tabs = 0; tabs < 12 && !(await page.evaluate(() => document.activeElement.closest("[data-request] button"))); tabs += 1) await page.keyboard.press("Shift+Tab");
      // Until it takes keys, or is gone; sometimes at once.
      const due = () => document.querySelector("[data-keys]") || !document.activeElement?.closest("[data-request]");
      // One that something new has pushed out of sight takes none.
      if (next() < 0.6) await page.waitForFunction(due, null, { timeout: 3000 }).catch(() => undefined);
    } else if (dice < 0.8) {
      await page.evaluate(() => document.activeElement?.blur());
    }
  };

  for (let number = 0; number < SENTENCES; number += 1) {
    if (number % 3 === 0) await now();
    const dice = next();
    await stand(dice);
    const keys = sentence(next);
    const event = Math.floor(next() * 3 * keys.length);
    const texts = [""];
    for (const [index, key] of keys.entries()) {
      if (index === event) await now();
      await page.keyboard.press(key === " " ? "Space" : key);
      if (key === "Enter") texts.push("");
      else if (key !== "Escape") texts[texts.length - 1] += key;
    }
    const left = texts.pop();
    sent[at].push(...texts.map((text) => text.trim()).filter(Boolean));
    let held;
    await until(async () => (held = await composer(page).inputValue()) === left, () => `seed ${seed}, sentence ${number} (${dice}): ${JSON.stringify(keys)} left ${JSON.stringify(held)}`);
    await composer(page).focus();
    await page.keyboard.press("ControlOrMeta+A");
    await page.keyboard.press("Delete");
    // What is being sent stays in the browser until the server has it: a reload now would bring it back.
    await page.waitForFunction((id) => localStorage.getItem(`clew.draft.${id}`) === null, sessions[at].id);
  }

  for (const [index, session] of sessions.entries()) {
    assert.deepEqual(await approvals(server, session), NONE, `seed ${seed}`);
    const said = async () => {
      const { messages } = await server.call("GET", `/api/sessions/${session.id}/messages?view=all&limit=500`);
      const queue = (await server.call("GET", `/api/sessions/${session.id}/queue`)).messages;
      const texts = [...messages.filter(({ role }) => role === "user"), ...queue].map(({ parts }) => parts.map(({ text }) => text ?? "").join("").trim());
      return sent[index].filter((text) => !texts.includes(text));
    };
    await until(async () => (await said()).length === 0, `seed ${seed}: not everything that was sent is stored`);
  }
});
