/** Everything by keyboard alone: no case here touches a pointer. The focus is always somewhere, and can be seen. */
import assert from "node:assert/strict";
import { holdFrames, letFramesGo, openPage, startServer, test } from "./kit.mjs";
import { composer, messagesOf, newSession, openSession, say, settled, thread, until } from "./scenes.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));

/** What has the focus, how it is called, and whether a person can see that. */
async function focused(page) {
  return page.evaluate(() => {
    const at = document.activeElement;
    if (!at || at === document.body) return { name: null, seen: false };
    const labels = [...(at.labels ?? [])].map((label) => label.textContent).join(" ");
    const by = at.getAttribute("aria-labelledby")?.split(" ").map((id) => document.getElementById(id)?.textContent).join(" ");
    const name = (at.getAttribute("aria-label") ?? by ?? (labels || at.textContent) ?? "").trim().replace(/\s+/g, " ");
    const style = getComputedStyle(at);
    const field = at.closest("form");
    const ringed = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
    // The composer shows it by its frame, so that no ring blinks around what is typed.
    const framed = at.tagName === "TEXTAREA" && field !== null && getComputedStyle(field).borderColor === ringColour();
    const box = at.getBoundingClientRect();
    const inView = box.width > 0 && box.height > 0 && box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
    let opaque = true;
    for (let up = at; up; up = up.parentElement) if (Number(getComputedStyle(up).opacity) < 0.5) opaque = false;
    return { name, role: at.getAttribute("role") ?? at.tagName.toLowerCase(), seen: (ringed || framed) && inView && opaque };

    function ringColour() {
      const probe = document.body.appendChild(document.createElement("span"));
      probe.style.color = "var(--thread)";
      const { color } = getComputedStyle(probe);
      probe.remove();
      return color;
    }
  });
}

/** Press a key until what is called so has the focus; wherever it stands on the way, that is seen. */
async function tabTo(page, name, { key = "Tab", most = 80 } = {}) {
  const passed = [];
  for (let count = 0; count < most; count += 1) {
    await page.keyboard.press(key);
    let now;
    await until(async () => {
      now = await focused(page);
      return now.seen || now.name === null;
    }, () => `the focus cannot be seen at ${JSON.stringify(now)}`);
    passed.push(now.name);
    if (now.name !== null && (typeof name === "string" ? now.name === name : name.test(now.name))) return;
  }
  assert.fail(`${name} is not reached by ${key}: ${JSON.stringify(passed)}`);
}

const back = { key: "Shift+Tab" };

/** The focus comes to what is called so, and can be seen there. */
async function focusIs(page, name) {
  let last;
  await until(async () => {
    last = await focused(page);
    return last.name !== null && last.seen && (typeof name === "string" ? last.name === name : name.test(last.name));
  }, () => `the focus is at ${JSON.stringify(last)}, not at ${name}`);
}

/** Type into the composer, which must have the focus, and send. */
async function send(page, text) {
  await focusIs(page, "Message");
  await page.keyboard.type(text);
  await page.keyboard.press("Enter");
}

/** Back from the composer to a button of a request, until it may be pressed. */
async function reach(page, name) {
  const button = page.getByRole("button", { name, exact: true });
  await button.waitFor();
  await tabTo(page, name, back);
  await until(() => button.isEnabled(), `${name} takes no press`);
}

const idOf = (page) => page.evaluate(() => /#\/s\/([\w-]+)/.exec(location.hash)?.[1]);
const textsOf = async (server, id) =>
  (await messagesOf(server, id)).map((message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join(""));

async function answered(page, server) {
  // What waits for a word is at rest too: it is over when nothing does.
  const id = await idOf(page);
  await until(async () => !(await settled(server, id)).waiting?.length, "something still waits");
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor({ state: "detached" });
}

test("a first session is begun, asked and answered without a pointer", async () => {
  const server = await startServer();
  const page = await openPage(server);
  await page.getByRole("heading", { name: "A thread through the labyrinth" }).waitFor();
  await focusIs(page, "Message");
  await send(page, "/model demo/echo");
  await page.getByText("The next message uses demo/echo.").waitFor();
  await send(page, "the thread runs on");
  await page.getByRole("article", { name: "Assistant" }).getByText("the thread runs on").waitFor();
  await focusIs(page, "Message");
  assert.deepEqual(await textsOf(server, await idOf(page)), ["the thread runs on", "the thread runs on"]);
});

test("Esc stops an answer, and what is typed next is sent", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await newSession(server, "stopped", "demo/long"));
  await send(page, "/model demo/long:slow");
  await send(page, "5000");
  await page.getByRole("article", { name: "Assistant" }).waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor({ state: "detached" });
  await page.getByText("Stopped.", { exact: true }).waitFor();
  // Pressed once more than it needs: what is typed next still goes somewhere.
  await page.keyboard.press("Escape");
  await focusIs(page, "Message");
  await send(page, "3");
  await answered(page, server);
  assert.equal((await messagesOf(server, await idOf(page))).length, 4);
});

test("a call is allowed, and another one denied with a reason", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await newSession(server, "asked", "demo/tools"));
  await send(page, "!bash echo hello from the keyboard");
  await reach(page, "Allow once");
  await page.keyboard.press("Enter");
  await answered(page, server);
  await send(page, "!bash echo not this one");
  await reach(page, "Deny");
  await page.keyboard.press("Enter");
  await focusIs(page, /^Reason/);
  await page.keyboard.type("because I say so");
  await page.keyboard.press("Enter");
  await page.getByText(/^Denied by admin via web · .* · because I say so$/).waitFor();
  await answered(page, server);
  await focusIs(page, "Message");
  const calls = (await messagesOf(server, await idOf(page))).flatMap((message) => message.parts.filter((part) => part.type === "tool-bash"));
  assert.deepEqual(calls.map((part) => [part.state, part.approval?.approved, part.approval?.reason]), [
    ["output-available", true, undefined],
    ["output-denied", false, "because I say so"],
  ]);
});

test("Esc in the reason for a denial leads back to the question", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "asked again", "demo/tools");
  const page = await openSession(server, id);
  await send(page, "!bash echo third");
  await reach(page, "Deny");
  await page.keyboard.press("Enter");
  await focusIs(page, /^Reason/);
  await page.keyboard.press("Escape");
  await focusIs(page, "Approve this command?");
  await tabTo(page, "For this session");
  await page.keyboard.press("Enter");
  await page.getByText("Press Enter to confirm: For this session").waitFor();
  await page.keyboard.press("Enter");
  await answered(page, server);
  await focusIs(page, "Message");
});

test("a question is answered", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await newSession(server, "questioned", "demo/tools"));
  await send(page, '!question {"question": "Left or right?", "options": ["left", "right"]}');
  await reach(page, "right");
  await page.keyboard.press("Enter");
  await answered(page, server);
  await focusIs(page, "Message");
  const [call] = (await messagesOf(server, await idOf(page))).flatMap((message) => message.parts.filter((part) => part.type === "tool-question"));
  assert.equal(call.output, "right");
});

test("Up edits the last message, an edit further up can be left, and a rewind is done and undone", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "gone back");
  await say(server, id, "one");
  await say(server, id, "two");
  const page = await openSession(server, id);
  await page.getByRole("article", { name: "Assistant" }).getByText("two").waitFor();
  await focusIs(page, "Message");
  await page.keyboard.press("ArrowUp");
  await page.getByText("Editing your last message").waitFor();
  await page.keyboard.press("Escape");
  // However late the next frame comes, what was selected meanwhile is written over.
  await holdFrames(page);
  await page.keyboard.press("ArrowUp");
  await until(async () => (await composer(page).inputValue()) === "two", "one's own words");
  await page.keyboard.press("ControlOrMeta+A");
  await letFramesGo(page);
  await page.keyboard.type("two");
  assert.equal(await composer(page).inputValue(), "two");
  await page.keyboard.type(" and a half");
  await page.keyboard.press("Enter");
  await page.getByRole("article", { name: "Assistant" }).getByText("two and a half").waitFor();
  await answered(page, server);
  assert.deepEqual(await textsOf(server, id), ["one", "one", "two and a half", "two and a half"]);

  await tabTo(page, "Edit and resend", back);
  await page.keyboard.press("Enter");
  await focusIs(page, "The message");
  await page.keyboard.press("Escape");
  await focusIs(page, "You");

  await tabTo(page, "Rewind to here");
  await page.keyboard.press("Enter");
  await until(async () => (await composer(page).inputValue()) === "two and a half", "the text did not come back");
  await focusIs(page, "Message");
  assert.deepEqual(await textsOf(server, id), ["one", "one"]);
  await until(async () => (await page.getByRole("button", { name: "Restore" }).count()) === 1, "the rewound turns are not offered");

  await tabTo(page, "Restore", back);
  await page.keyboard.press("Enter");
  await page.getByRole("article", { name: "Assistant" }).getByText("two and a half").waitFor();
  await until(async () => (await focused(page)).seen, "the focus is lost after the un-rewind");
  assert.deepEqual(await textsOf(server, id), ["one", "one", "two and a half", "two and a half"]);
});

test("a branch is made from a message, and written in at once", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "the trunk");
  await say(server, id, "one");
  await say(server, id, "two");
  const page = await openSession(server, id);
  await page.getByRole("article", { name: "Assistant" }).getByText("two").waitFor();
  await focusIs(page, "Message");
  await page.keyboard.press("Shift+Tab");
  await tabTo(page, "Branch from here", back);
  await page.keyboard.press("Enter");
  await until(async () => (await idOf(page)) !== id, "the branch is not opened");
  await page.getByText("branched from the trunk").waitFor();
  await send(page, "three");
  await answered(page, server);
  assert.deepEqual((await textsOf(server, await idOf(page))).slice(-2), ["three", "three"]);
  assert.deepEqual(await textsOf(server, id), ["one", "one", "two", "two"]);
});

test("a search is typed, walked through and landed on", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "where the minotaur sleeps");
  await say(server, id, "the minotaur sleeps under the stairs");
  for (let number = 0; number < 3; number += 1) await say(server, id, `${"nothing to see here\n".repeat(30)}${number}`);
  const page = await openSession(server, await newSession(server, "somewhere else"));
  await focusIs(page, "Message");
  await page.keyboard.press("Control+Shift+F");
  await focusIs(page, "Search all sessions");
  await page.keyboard.type("stairs minotaur");
  await page.getByRole("list", { name: "Matching messages" }).waitFor();
  await page.keyboard.press("ArrowDown");
  await focusIs(page, /under the stairs/);
  await page.keyboard.press("ArrowUp");
  await focusIs(page, "Search all sessions");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await until(async () => (await idOf(page)) === id, "the session is not opened");
  await focusIs(page, /^(You|Assistant)$/);
  const landed = await page.evaluate(() => document.activeElement.dataset.message);
  assert.equal((await messagesOf(server, id)).slice(0, 2).some((message) => message.id === landed), true);
});

test("the inspector is opened, its tabs walked and closed again", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "inspected", "demo/tools");
  await say(server, id, "!ls .");
  const page = await openSession(server, id);
  await focusIs(page, "Message");
  await page.keyboard.press("Control+i");
  await page.getByRole("complementary", { name: "Inspector" }).getByRole("tab", { name: "Turn" }).waitFor();
  await tabTo(page, "Turn");
  for (const [name, shows] of [["Tree", "1 turn, 0 rewound"], ["Reflog", "current"], ["Changes", /^No change/], ["Rules", "This session"], ["Turn", "What the model saw"]]) {
    await page.keyboard.press("ArrowRight");
    await focusIs(page, name);
    await page.getByRole("tabpanel", { name }).getByText(shows).first().waitFor();
  }
  await tabTo(page, "Close the inspector");
  await page.keyboard.press("Enter");
  await page.getByRole("complementary", { name: "Inspector" }).waitFor({ state: "detached" });
  await focusIs(page, "Message");
});

test("a turn of the tree is picked, and a branch in it opened", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "a tree");
  await say(server, id, "root");
  await say(server, id, "leaf");
  const first = (await messagesOf(server, id))[1];
  const branch = await server.call("POST", `/api/sessions/${id}/branch`, { from_message_id: first.id, metadata: { title: "a twig" } });
  const page = await openSession(server, id);
  await send(page, "/tree");
  await page.getByRole("tabpanel", { name: "Tree" }).getByText("2 turns").waitFor();
  await page.getByRole("tabpanel", { name: "Tree" }).getByText("a twig").waitFor();
  await tabTo(page, /^Turn root/);
  await page.keyboard.press("Enter");
  await page.getByRole("tabpanel", { name: "Turn" }).getByRole("heading", { name: "root" }).waitFor();
  await until(async () => (await focused(page)).seen, "the focus is lost with the tree");
  await tabTo(page, "Turn", back);
  await page.keyboard.press("ArrowRight");
  await page.getByRole("tabpanel", { name: "Tree" }).getByText("a twig").waitFor();
  await tabTo(page, "Open");
  await page.keyboard.press("Enter");
  await until(async () => (await idOf(page)) === branch.id, "the branch is not opened");
});

test("a slash command summarises, and the line it leaves opens", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "made short");
  for (let number = 0; number < 6; number += 1) await say(server, id, `${number} ${"ariadne holds the thread ".repeat(60)}`);
  const page = await openSession(server, id);
  await focusIs(page, "Message");
  await page.keyboard.type("/compac");
  await page.getByRole("listbox", { name: "Commands" }).waitFor();
  await page.keyboard.press("Enter");
  assert.equal(await composer(page).inputValue(), "/compact ");
  await page.keyboard.type("the thread");
  await page.keyboard.press("Enter");
  const line = page.getByRole("button", { name: /^Summarised \d+ earlier turn/ });
  await line.waitFor();
  await focusIs(page, "Message");
  await tabTo(page, /^Summarised/, back);
  await page.keyboard.press("Enter");
  await page.getByText("Focus: the thread").waitFor();
  await tabTo(page, "Show original messages");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Hide original messages" }).waitFor();
  await focusIs(page, "Hide original messages");
});

test("sessions are renamed, archived and deleted from the list, and the focus stays in it", async () => {
  const server = await startServer();
  for (const title of ["first", "second", "third"]) await newSession(server, title);
  const page = await openPage(server);
  await page.getByRole("link", { name: /^third/ }).waitFor();
  await tabTo(page, /^third/);
  await page.keyboard.press("F2");
  await focusIs(page, "Session title");
  await page.keyboard.type("renamed");
  await page.keyboard.press("Enter");
  await focusIs(page, /^renamed/);
  await tabTo(page, "Actions for renamed");
  await page.keyboard.press("Enter");
  await focusIs(page, "Rename");
  await page.keyboard.press("Escape");
  await focusIs(page, "Actions for renamed");
  await page.keyboard.press("Enter");
  await page.keyboard.press("ArrowDown");
  await focusIs(page, "Archive");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: /^renamed/ }).waitFor({ state: "detached" });
  await focusIs(page, /^(first|second)/);
  const left = (await focused(page)).name.startsWith("first") ? "first" : "second";
  await page.keyboard.press("Delete");
  await focusIs(page, "Cancel");
  await page.keyboard.press("Escape");
  await focusIs(page, new RegExp(`^${left}`));
  await page.keyboard.press("Delete");
  await tabTo(page, "Delete permanently");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: new RegExp(`^${left}`) }).waitFor({ state: "detached" });
  await focusIs(page, /^(first|second)/);
  // The last one: there is no row left to stand on.
  await page.keyboard.press("Delete");
  await tabTo(page, "Delete permanently");
  await page.keyboard.press("Enter");
  await page.getByText("No sessions yet").waitFor();
  await focusIs(page, "New session");
  assert.deepEqual((await server.call("GET", "/api/sessions?archived=true")).sessions.map((session) => session.title), ["renamed"]);
});

test("the title is renamed where it stands, and a queued message cancelled: the focus stays near", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "to be named");
  await say(server, id, "hello");
  const page = await openSession(server, id);
  await focusIs(page, "Message");
  await tabTo(page, "to be named, rename", back);
  await page.keyboard.press("F2");
  await focusIs(page, "Session title");
  await page.keyboard.type("named");
  await page.keyboard.press("Enter");
  await focusIs(page, "named, rename");

  await tabTo(page, "Message");
  await send(page, "/model demo/tools");
  await send(page, "!bash echo wait");
  await page.getByRole("group", { name: "Approve this command?" }).waitFor();
  await send(page, "/model demo/echo");
  await send(page, "queued");
  await page.getByRole("button", { name: "Cancel queued message: queued" }).waitFor();
  await tabTo(page, "Cancel queued message: queued", back);
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: /: queued$/ }).first().waitFor({ state: "detached" });
  await focusIs(page, "Message");
});

test("a sidecar is opened by its command, and closing it leads back", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "with a sidecar");
  await say(server, id, "hello");
  const page = await openSession(server, id);
  await send(page, "/sidecar");
  const beside = page.getByRole("region", { name: "Side conversation" });
  await beside.waitFor();
  await until(() => beside.evaluate((pane) => pane.contains(document.activeElement) && document.activeElement.tagName === "TEXTAREA"), "the sidecar is not ready to be typed in");
  await tabTo(page, "Close this pane", back);
  await page.keyboard.press("Enter");
  await beside.waitFor({ state: "detached" });
  await focusIs(page, "Message");
});

test("on a narrow screen the list opens, closes and gives the focus back", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await newSession(server, "narrow"), { width: 390 });
  await focusIs(page, "Message");
  await tabTo(page, "Sessions", back);
  await page.keyboard.press("Enter");
  await page.getByRole("complementary", { name: "Sessions" }).waitFor();
  await until(() => page.evaluate(() => document.querySelector("aside").contains(document.activeElement)), "the focus is not in the list");
  assert.equal((await focused(page)).seen, true);
  await page.keyboard.press("Escape");
  await page.getByRole("complementary", { name: "Sessions" }).waitFor({ state: "hidden" });
  await focusIs(page, "Sessions");
});

test("who has gone on when the search is ready stays where they went", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "Gone on");
  const page = await openSession(server, id);
  await composer(page).waitFor();
  const row = page.getByRole("link", { name: /^Gone on/ });
  await row.waitFor();
  await holdFrames(page);
  await page.keyboard.press("Control+Shift+F");
  await row.focus();
  await letFramesGo(page);
  await page.keyboard.press("Delete");
  await page.getByRole("dialog", { name: "Delete this session?" }).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+Shift+F");
  await focusIs(page, "Search all sessions");
});

test("who writes on while a message is being landed on goes on writing", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "Landed on");
  await say(server, id, "one");
  await say(server, id, "two");
  const [first] = await messagesOf(server, id);
  const page = await openSession(server, id);
  await thread(page).getByRole("article", { name: "Assistant" }).last().waitFor();
  await focusIs(page, "Message");
  await page.evaluate(() => {
    // It flashes for no time at all where nothing is to move.
    const look = () => (window.landing ||= document.querySelector(".clew-flash") !== null);
    new MutationObserver(look).observe(document.body, { subtree: true, attributes: true, attributeFilter: ["class"] });
  });
  await holdFrames(page);
  await page.evaluate((hash) => (location.hash = hash), `#/s/${id}/m/${first.id}`);
  await until(() => page.evaluate(() => window.landing), "the message is not landed on");
  await page.keyboard.type("on");
  await letFramesGo(page);
  await page.keyboard.type(" and on");
  assert.equal(await composer(page).inputValue(), "on and on");
  await focusIs(page, "Message");
  // Who waits for it is taken there.
  await page.evaluate((hash) => (location.hash = hash), `#/s/${id}`);
  await page.evaluate((hash) => (location.hash = hash), `#/s/${id}/m/${first.id}`);
  await focusIs(page, "You");
});

test("the caret stays where it was put after a text came from the palette", async () => {
  const server = await sharedServer();
  await server.call("POST", "/api/prompts", { name: "tidy", text: "Tidy up." });
  const page = await openSession(server, await newSession(server, "Caret"));
  await composer(page).waitFor();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("tidy");
  await page.getByRole("option", { name: /tidy Tidy up/ }).waitFor();
  await holdFrames(page);
  await page.keyboard.press("Enter");
  await until(async () => (await composer(page).inputValue()) === "Tidy up.", "the text");
  await page.keyboard.press("Home");
  await page.keyboard.type("x");
  await letFramesGo(page);
  await page.keyboard.type("y ");
  assert.equal(await composer(page).inputValue(), "xy Tidy up.");
});

test("a row that was gone on from in the list does not take the focus back", async () => {
  const server = await startServer();
  for (const title of ["First", "Second"]) await newSession(server, title);
  const page = await openPage(server);
  const row = (title) => page.getByRole("link", { name: new RegExp(`^${title}`) });
  await row("First").focus();
  await holdFrames(page);
  await page.keyboard.press("p");
  await row("Second").focus();
  await page.keyboard.press("Shift");
  await letFramesGo(page);
  await page.keyboard.press("F2");
  assert.equal(await page.getByRole("complementary", { name: "Sessions" }).getByRole("textbox", { name: /title/i }).inputValue(), "Second");
});
