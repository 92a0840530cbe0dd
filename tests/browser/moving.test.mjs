/** Moving in on the page: files of another program are chosen, come as sessions, and say what has no place. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { audit, openPage, startServer, test } from "./kit.mjs";

const PROGRAMS = join(import.meta.dirname, "..", "fixtures", "programs");
const CLAUDE = join(PROGRAMS, "claude-code/2.1/-home-ada-maze");
const ID = "5e551011-0000-4000-8000-000000000001";
const FILES = [join(CLAUDE, `${ID}.jsonl`), join(CLAUDE, ID, "subagents", "agent-a1b2c3d4.jsonl")];

async function openImport(page) {
  await page.getByRole("textbox").first().waitFor();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("import");
  await page.getByRole("dialog", { name: "Search or run a command" }).getByRole("option", { name: /Import sessions/ }).click();
  return page.getByRole("dialog", { name: "Import sessions" });
}

async function comes(options) {
  const server = await startServer();
  const page = await openPage(server, options);
  const dialog = await openImport(page);
  const files = dialog.locator("input[type=file]");
  await files.setInputFiles(FILES);
  await dialog.getByText("1 file processed").waitFor();
  await dialog.getByText(`${ID}.jsonl: imported, 5 turns, 1 subagent`).waitFor();
  await dialog.getByText(/notes$/).click();
  await dialog.getByText(/1 × lines of kind progress/).waitFor();
  assert.deepEqual(await audit(page), []);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
  return { page, dialog, files };
}

test("files of another program come as sessions, and again change nothing", async () => {
  const { page, dialog, files } = await comes({});
  await files.setInputFiles(FILES);
  await dialog.getByText(`${ID}.jsonl: already imported`).waitFor();
  await dialog.getByRole("link", { name: "The thread" }).click();
  await page.getByRole("main").getByText("Seven doors.").waitFor();
});

test("on a phone at night they come too, and what is no session is told by its file", async () => {
  const { page, dialog, files } = await comes({ width: 390, dark: true });
  page.allow(/400|422/);
  await dialog.getByLabel("From", { exact: true }).selectOption("pi");
  await files.setInputFiles(FILES.slice(0, 1));
  await dialog.getByRole("alert").getByText(/contains no messages/i).waitFor();
});
