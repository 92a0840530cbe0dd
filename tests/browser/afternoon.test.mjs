/** An afternoon of work by keyboard alone: from the first question to a rule that is taken back, and no pointer. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { openPage, startServer, test } from "./kit.mjs";
import { becomes, composer, message, openId, stored, textOf, thread, until } from "./session.mjs";

test("an afternoon of work by keyboard alone", async () => {
  const server = await startServer();
  const folder = join(server.folder, "work");
  await mkdir(folder);
  await writeFile(join(folder, "calc.py"), "def add(a, b):\n    return a - b\n");
  await writeFile(join(folder, "tests.sh"), "for n in 1 2 3; do echo test $n passed; done; cat gate; echo all passed\n");
  execFileSync("mkfifo", [join(folder, "gate")]);
  const page = await openPage(server);
  const keys = page.keyboard;
  const field = page.getByRole("textbox", { name: "Message", exact: true });
  const writing = () => until(() => field.evaluate((one) => one === document.activeElement), "the composer to have the focus");
  const write = async (text) => {
    await writing();
    await keys.type(text);
    await keys.press("Enter");
  };
  /** Back from the composer to what waits, until keys answer it. */
  const asked = async (name) => {
    const group = thread(page).getByRole("group", { name });
    await group.waitFor();
    for (let tabs = 0; !(await group.evaluate((one) => one.contains(document.activeElement))); tabs += 1) {
      assert.ok(tabs < 40, "the request is reached by Tab");
      await keys.press("Shift+Tab");
    }
    await group.and(page.locator("[data-keys]")).waitFor();
    return group;
  };
  const answer = async (key) => {
    await keys.press(key);
    await keys.press("Enter");
  };
  const answered = (text) => thread(page).getByRole("article", { name: "Assistant" }).getByText(text).first().waitFor();
  const rests = () => page.getByRole("button", { name: "Send", exact: true }).waitFor();

  // Start in a folder, and ask.
  await writing();
  for (let back = 0; !(await page.getByLabel("Folder").evaluate((one) => one === document.activeElement)); back += 1) {
    assert.ok(back < 20, "the folder is reached from the composer");
    await keys.press("Shift+Tab");
  }
  await keys.type(folder);
  while (!(await field.evaluate((one) => one === document.activeElement))) await keys.press("Tab");
  await write("/model demo/tools");
  await write("hello there");
  await message(thread(page), "Assistant", "hello there").waitFor();
  await rests();

  // Approve an edit as a diff.
  await write('!edit {"path": "calc.py", "old": "a - b", "new": "a + b"}');
  const edit = await asked("Approve this edit call?");
  assert.match(await edit.getByRole("group", { name: "Change" }).innerText(), /−.*a - b\n.*\+.*a \+ b/s);
  await answer("y");
  await rests();
  assert.equal(await readFile(join(folder, "calc.py"), "utf8"), "def add(a, b):\n    return a + b\n");

  // Watch tests run live, allowed for this session.
  await write("!bash sh tests.sh");
  await asked("Approve this command?");
  await answer("s");
  await thread(page).getByRole("log").getByText("test 3 passed").waitFor();
  await writeFile(join(folder, "gate"), "and the last one\n");
  await answered(/all passed/);
  await rests();

  // Deny with a reason.
  await write("!bash touch unwanted");
  await asked("Approve this command?");
  await answer("n");
  await keys.type("not in this folder");
  await keys.press("Enter");
  await page.getByText(/^Denied by admin via web · .* · not in this folder$/).waitFor();
  await rests();

  // Queue two, stop: nothing of it begins before it is told to.
  await write("!bash sh tests.sh");
  await thread(page).getByRole("log").getByText("test 3 passed").waitFor();
  await write("first in line");
  await write("second in line");
  const queue = page.getByRole("list", { name: "Queued messages" }).getByRole("listitem");
  await becomes(() => queue.allInnerTexts(), ["first in line", "second in line"]);
  await keys.press("Escape");
  await page.getByText("paused after a stop").waitFor();
  assert.equal(await queue.count(), 2);
  await write("/queue go on");
  await message(thread(page), "Assistant", "second in line").waitFor();
  await rests();

  // Edit, and get a second version; compare the two.
  await writing();
  await keys.press("ArrowUp");
  await until(async () => (await field.inputValue()) === "second in line", "one's own words");
  await keys.press("ControlOrMeta+A");
  await keys.type("second, in other words");
  await keys.press("Enter");
  await message(thread(page), "Assistant", "second, in other words").waitFor();
  await thread(page).getByRole("group", { name: "Versions" }).getByText("2/2").waitFor();
  await rests();
  await write("/compare");
  const dialog = page.getByRole("dialog", { name: "Compare versions" });
  await dialog.getByRole("region", { name: "Version 1" }).getByText("second in line").first().waitFor();
  await dialog.getByRole("region", { name: "Version 2" }).getByText("second, in other words").first().waitFor();
  await keys.press("Escape");
  await dialog.waitFor({ state: "detached" });

  // Rewind, and think better of it.
  await write("/rewind");
  await until(async () => (await field.inputValue()) === "second, in other words", "the words handed back");
  await keys.press("ControlOrMeta+A");
  await keys.press("Delete");
  await write("/unrewind");
  await message(thread(page), "Assistant", "second, in other words").waitFor();

  // Compact, and search.
  await write(`${"word ".repeat(120)}end`);
  await answered(/end$/);
  await rests();
  await write("/compact");
  await page.getByRole("button", { name: /^Summarised \d+ earlier turns?/ }).first().waitFor();
  await keys.press("ControlOrMeta+k");
  const palette = page.getByRole("dialog", { name: "Search or run a command" });
  await palette.getByRole("combobox").waitFor();
  await keys.type("unwanted");
  await palette.getByRole("option", { name: /unwanted/ }).first().waitFor();
  await keys.press("Escape");
  await palette.waitFor({ state: "detached" });

  // Revoke the rule.
  await write("/rules");
  const revoke = page.getByRole("button", { name: /^Revoke/ }).first();
  await revoke.waitFor();
  for (let tabs = 0; !(await revoke.evaluate((one) => one === document.activeElement)); tabs += 1) {
    assert.ok(tabs < 80, "the rule is reached by Tab");
    await keys.press("Tab");
  }
  await keys.press("Enter");
  await until(async () => (await server.call("GET", `/api/rules?scope=session&session=${openId(page)}`)).rules.length === 0, "the rule to be gone");
  const said = (await stored(server, openId(page), "?view=all")).map(textOf);
  assert.deepEqual(["second in line", "second, in other words"].map((words) => said.filter((text) => text === words).length), [2, 2]);
  assert.ok(!(await readdir(folder)).includes("unwanted"));
});
