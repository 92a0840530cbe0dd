/** What axe says of each main state, in light and dark, wide and narrow; and that nothing scrolls sideways. */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { audit, openPage, startServer, test } from "./kit.mjs";
import { atRest, begin, composer, goTo, messagesOf, newSession, openSession, say, sideways, until } from "./scenes.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));

/** The state as it is: wide and narrow with all rules, both in the dark with those about colours. */
async function sound(page) {
  const found = {};
  for (const width of [1280, 390]) {
    await page.setViewportSize({ width, height: 800 });
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await page.locator(`html[data-theme=${colorScheme}]`).waitFor({ state: "attached" });
      await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
      const where = `${width} ${colorScheme}`;
      found[where] = colorScheme === "dark" ? await contrast(page) : await audit(page);
      const over = await sideways(page);
      if (over.length > 0) found[where].push(`scrolls sideways: ${over}`);
    }
  }
  assert.deepEqual(found, { "1280 light": [], "1280 dark": [], "390 light": [], "390 dark": [] });
}

/** The rule that another theme can break. `audit` has brought axe along. */
async function contrast(page) {
  const options = { runOnly: { type: "rule", values: ["color-contrast"] }, resultTypes: ["violations"] };
  const { violations } = await page.evaluate((given) => window.axe.run(document, given), options);
  return violations.flatMap(({ nodes }) => nodes.map(({ target, any }) => `${target.join(" ")}: ${any[0]?.message}`));
}

const sidebar = (page) => page.getByRole("complementary", { name: "Sessions" });
const answer = (page) => page.getByRole("article", { name: "Assistant" });

async function told(server, title, lines, name) {
  const id = await newSession(server, title, name);
  for (const line of lines) await say(server, id, line);
  return id;
}

/** The inspector's tab, on a session that has something for each of them. */
let rich;
function richSession(server) {
  rich ??= (async () => {
    const id = await newSession(server, "Rich in everything", "demo/tools");
    await say(server, id, "!ls .");
    await say(server, id, "second");
    await say(server, id, "third");
    const messages = await messagesOf(server, id);
    const branch = await server.call("POST", `/api/sessions/${id}/branch`, { from_message_id: messages[1].id, metadata: { title: "A branch of it" } });
    await server.call("POST", `/api/sessions/${id}/rewind`, { message_id: messages.at(-2).id, mode: "edit" });
    await say(server, id, "third, said differently");
    return { id, branch: branch.id };
  })();
  return rich;
}

async function inspecting(tab, shows) {
  const server = await sharedServer();
  const { id } = await richSession(server);
  const page = await openSession(server, id);
  await answer(page).last().waitFor();
  await page.keyboard.press("Control+i");
  await page.getByRole("tab", { name: tab }).click();
  await page.getByRole("tabpanel", { name: tab }).getByText(shows).first().waitFor();
  return page;
}

test("the gate", async () => {
  const server = await sharedServer();
  const page = await openPage(server, { path: "/" });
  await page.getByLabel("Token or address").waitFor();
  await sound(page);
});

test("the welcome of an empty store", async () => {
  const page = await openPage(await startServer());
  await page.getByRole("button", { name: "Load examples" }).waitFor();
  await sound(page);
});

test("a session in which nothing was said", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await newSession(server, "Empty"));
  await page.getByRole("heading", { name: "No messages yet" }).waitFor();
  await sound(page);
});

test("an answer that is being written", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "Streaming", "demo/long");
  const page = await openSession(server, id);
  await composer(page).waitFor();
  await begin(server, id, "5000", "demo/long:slow");
  await answer(page).getByText(/\w+ \w+ \w+/).first().waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
  await sound(page);
  await server.call("POST", `/api/sessions/${id}/abort`);
});

test("an answer of every kind of Markdown", async () => {
  const server = await sharedServer();
  const text = [
    "# Heading", "Some *words*, `code`, [a link](https://example.org/) and ~~more~~.", "- [x] done\n- [ ] to do", "1. one\n2. two",
    "> quoted", "```python\nprint('hello')\n```", "| a | b |\n|---|---|\n| 1 | 2 |", "---",
  ].join("\n\n");
  const page = await openSession(server, await told(server, "Markdown", [text]));
  await answer(page).getByRole("link", { name: "a link" }).waitFor();
  await sound(page);
});

test("a call that waits for a word", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await told(server, "Approval", ["!bash echo hello"], "demo/tools"));
  await page.getByRole("button", { name: "Deny" }).click();
  await page.getByLabel(/^Reason/).waitFor();
  await sound(page);
});

test("a question", async () => {
  const server = await sharedServer();
  const asked = '!question {"question": "Left or right?", "options": ["left", "right"]}';
  const page = await openSession(server, await told(server, "Question", [asked], "demo/tools"));
  await page.getByRole("button", { name: "left", exact: true }).waitFor();
  await sound(page);
});

test("a turn that failed", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await told(server, "Failure", ["401"], "demo/fail"));
  await page.getByRole("main").getByRole("alert").getByText("Details").click();
  await sound(page);
});

test("a summary that is opened", async () => {
  const server = await sharedServer();
  const id = await told(server, "Summary", Array.from({ length: 6 }, (_, number) => `${number} ${"ariadne holds the thread ".repeat(60)}`));
  await server.call("POST", `/api/sessions/${id}/compact`, { focus: "the thread" });
  const page = await openSession(server, id);
  // Rows move while they are measured; a press and its release must meet the same one.
  await atRest(page);
  await page.getByRole("button", { name: /^Summarised/ }).click();
  await atRest(page);
  await page.getByRole("button", { name: "Show original messages" }).click();
  await page.getByRole("group", { name: "Summary of earlier turns" }).getByRole("article").first().waitFor();
  await sound(page);
});

test("a rewound banner that is opened", async () => {
  const server = await sharedServer();
  const id = await told(server, "Rewound", ["one", "two"]);
  await server.call("POST", `/api/sessions/${id}/rewind`, { message_id: (await messagesOf(server, id)).at(-2).id, mode: "edit" });
  const page = await openSession(server, id);
  const banner = page.getByRole("group", { name: "Undone messages" });
  await atRest(page);
  await banner.getByRole("button", { name: "Show" }).click();
  await banner.getByRole("article").first().waitFor();
  await sound(page);
});

test("a tool's output that is opened", async () => {
  const server = await sharedServer();
  const { id } = await richSession(server);
  const page = await openSession(server, id);
  await atRest(page);
  await page.getByRole("button", { name: /^ls/ }).click();
  await page.getByRole("group", { name: "Output" }).waitFor();
  await sound(page);
});

test("a turn in the inspector", async () => {
  const page = await inspecting("Turn", "What the model saw");
  await page.getByText("Verified").waitFor();
  await page.getByRole("button", { name: /^Messages/ }).click();
  await sound(page);
});

test("the tree", async () => {
  const page = await inspecting("Tree", "A branch of it");
  await sound(page);
});

test("the reflog", async () => {
  const page = await inspecting("Reflog", "current");
  await sound(page);
});

/** A session whose folder has changed; somebody else changed a file of it, too. */
async function changed(server) {
  const root = join(server.folder, "changed");
  await mkdir(root, { recursive: true });
  await writeFile(join(root, "app.py"), "host = 'localhost'\nport = 80\n");
  const id = await newSession(server, "Changed files", "demo/tools", { workspace_root: root });
  await server.call("PUT", `/api/sessions/${id}/permissions`, { rules: [{ permission: "*", pattern: "**", action: "allow" }] });
  await say(server, id, `!write ${JSON.stringify({ path: "app.py", content: "host = 'localhost'\nport = 8080\n" })}\n!write a/long/path/of/a/new/file/with/a/long_name.py new`);
  await writeFile(join(root, "app.py"), "mine\n");
  return openSession(server, id);
}

test("the changes of files", async () => {
  const page = await changed(await sharedServer());
  await answer(page).last().waitFor();
  await page.keyboard.press("Control+i");
  await page.getByRole("tab", { name: "Changes" }).click();
  await page.getByRole("tabpanel", { name: "Changes" }).getByRole("button", { name: "Modified app.py" }).click();
  await page.getByRole("group", { name: "Changes of app.py" }).waitFor();
  await sound(page);
  await page.getByRole("button", { name: "Revert file app.py" }).click();
  await page.getByRole("dialog", { name: "Revert this file?" }).waitFor();
  await sound(page);
});

test("what is asked about files before a rewind", async () => {
  const page = await changed(await sharedServer());
  await answer(page).last().waitFor();
  await page.getByRole("button", { name: "Rewind to here" }).click();
  await page.getByRole("dialog", { name: "Rewind" }).waitFor();
  await sound(page);
  await page.getByRole("radio", { name: /Conversation and files/ }).check();
  await sound(page);
});

test("the prompts of two turns, compared", async () => {
  const page = await inspecting("Turn", "Compare what the model saw with another turn");
  await page.getByLabel("Compare what the model saw with another turn").selectOption({ index: 1 });
  await page.getByRole("dialog").getByText("identical").first().waitFor();
  await sound(page);
});

test("the models to pick from", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await newSession(server, "Models"));
  await page.getByRole("button", { name: /^Model: / }).click();
  await page.getByRole("listbox", { name: "Models" }).getByRole("option").first().waitFor();
  await sound(page);
});

test("the slash commands", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await newSession(server, "Commands"));
  await composer(page).fill("/");
  await page.getByRole("listbox", { name: "Commands" }).waitFor();
  await sound(page);
});

test("the keys and commands in a dialog", async () => {
  const server = await sharedServer();
  const page = await openSession(server, await newSession(server, "Help"));
  await composer(page).fill("/help");
  await composer(page).press("Enter");
  await page.getByRole("dialog").waitFor();
  await sound(page);
});

test("the question before a session is deleted", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "To be deleted");
  const page = await openSession(server, id);
  await composer(page).waitFor();
  // On a narrow screen the list has to be open for it.
  await page.keyboard.press("Control+Shift+F");
  await page.getByRole("link", { name: /^To be deleted/ }).press("Delete");
  await page.getByRole("dialog", { name: "Delete this session?" }).waitFor();
  await sound(page);
});

test("two branches side by side", async () => {
  const server = await sharedServer();
  const { id, branch } = await richSession(server);
  const page = await openSession(server, id);
  await answer(page).last().waitFor();
  await goTo(page, `#/s/${id}?beside=${branch}`);
  await page.getByRole("region", { name: "Side conversation" }).getByRole("article").last().waitFor();
  await sound(page);
});

test("what a search found", async () => {
  const server = await sharedServer();
  const id = await told(server, "Searched", ["a needle in the labyrinth"]);
  const page = await openSession(server, id);
  await answer(page).waitFor();
  await page.keyboard.press("Control+Shift+F");
  await page.getByRole("textbox", { name: "Search all sessions" }).fill("needle");
  await sidebar(page).getByRole("link", { name: /needle/ }).first().waitFor();
  await sound(page);
});

test("the context's figures and a menu", async () => {
  const server = await sharedServer();
  const { id } = await richSession(server);
  const page = await openSession(server, id);
  await answer(page).last().waitFor();
  await page.getByRole("button", { name: /^Context\./ }).click();
  await page.getByRole("region", { name: "Context breakdown" }).waitFor();
  await sound(page);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Session actions" }).click();
  await page.getByRole("menu").waitFor();
  assert.deepEqual(await audit(page), []);
  assert.deepEqual(await sideways(page), []);
});

test("the server is away", async () => {
  const server = await startServer();
  const id = await told(server, "Away", ["hello"]);
  const page = await openSession(server, id);
  await answer(page).waitFor();
  page.allow(/ERR_CONNECTION_REFUSED|net::ERR/);
  await server.kill9();
  await page.getByText("Reconnecting…").waitFor();
  await sound(page);
  await until(async () => (await composer(page).isEnabled()), "the composer is shut");
});
