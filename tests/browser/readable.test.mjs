/** Work that can be read: code in colours, differences as differences, formulas and diagrams, tables as they were meant. */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { startServer, test } from "./kit.mjs";
import { newSession, openSession, say, until } from "./scenes.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));

const CODE = "```python\ndef answer(question: str) -> int:\n    # deep thought\n    return 42 if question else len(\"none\")\n```";
const DIFF = "```diff\n--- a/thread.py\n+++ b/thread.py\n@@ -1,3 +1,4 @@\n spin()\n-cut()\n+wind()\n+keep()\n```";
const MATHS = "Inline $$e^{i\\pi}+1=0$$ and for \\$5 or $5 nothing.\n\n$$\n\\int_0^1 x^2\\,dx = \\frac{1}{3}\n$$";
const MERMAID = "```mermaid\ngraph LR\n  Prompt --> Journal --> Viewer\n```";
const TABLE = "| left | middle | right |\n|:--|:-:|--:|\n| a | b | 1 |";

async function answered(text, options) {
  const server = await sharedServer();
  const id = await newSession(server, "Readable", "demo/echo");
  await say(server, id, text);
  const page = await openSession(server, id, options);
  const article = page.getByRole("article", { name: "Assistant" }).last();
  await article.waitFor();
  return { server, id, page, article };
}

test("code has the colours of its language, as it is told and when it is read again", async () => {
  const { page, article, server, id } = await answered(CODE);
  const looks = () =>
    article.getByRole("group", { name: "Code, python" }).evaluate((pre) => ({
      text: pre.textContent,
      kinds: [...pre.querySelectorAll("span")].map((span) => [span.className.replace("clew-code-", ""), span.textContent]),
    }));
  await until(async () => (await looks()).kinds.length > 0, "no colours");
  const first = await looks();
  assert.equal(first.text, 'def answer(question: str) -> int:\n    # deep thought\n    return 42 if question else len("none")');
  for (const kind of [["keyword", "def"], ["comment", "# deep thought"], ["number", "42"], ["string", '"none"']]) {
    assert.deepEqual(first.kinds.filter(([name, text]) => name === kind[0] && text === kind[1]).length, 1, JSON.stringify(first.kinds));
  }
  await say(server, id, CODE.replace("42", "43"));
  await until(async () => (await looks()).kinds.some(([, text]) => text === "43"), "no colours while it came");
  await page.reload();
  await until(async () => (await looks()).kinds.some(([, text]) => text === "43"), "no colours after it was read again");
});

test("a difference in an answer is shown as one, with what came and went counted", async () => {
  const { article } = await answered(DIFF);
  const difference = article.getByRole("group", { name: "Diff" });
  await difference.waitFor();
  const lines = await difference.locator("div").allTextContents();
  assert.deepEqual(lines, ["--- a/thread.py", "+++ b/thread.py", "@@ -1,3 +1,4 @@", "  spin()", "− cut()", "+ wind()", "+ keep()"]);
  assert.equal((await article.textContent()).includes("diff+2 −1"), true);
});

test("formulas are set, and money is money", async () => {
  const { article } = await answered(MATHS);
  await until(async () => (await article.locator(".katex").count()) === 2, "no formulas");
  const text = await article.evaluate((element) => [...element.querySelectorAll("p")].map((p) => [...p.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join("…")));
  assert.equal(text[0].endsWith("and for $5 or $5 nothing."), true, text[0]);
  assert.equal(await article.locator(".katex-display").count(), 1);
  // The fonts are the page's own.
  assert.equal(await article.locator(".katex").first().evaluate((element) => getComputedStyle(element).fontFamily.includes("KaTeX")), true);
});

test("a diagram is drawn as a picture that opens large, with its text one press away", async () => {
  const { page, article } = await answered(MERMAID);
  const picture = article.getByRole("img", { name: "Diagram" });
  await picture.waitFor();
  await until(() => picture.evaluate((image) => image.complete && image.naturalWidth > 50), "an empty picture");
  await article.getByRole("button", { name: "Show source" }).click();
  await article.getByRole("group", { name: "Code, mermaid" }).waitFor();
  await article.getByRole("button", { name: "Show diagram" }).click();
  await article.getByRole("button", { name: "Open large: Diagram" }).press("Enter");
  await page.getByRole("dialog", { name: "Diagram" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
});

test("what only looks like a diagram stays the text it is", async () => {
  const { page, article } = await answered("```mermaid\nthis is no diagram at all\n```\n\n" + MERMAID);
  await article.getByRole("img", { name: "Diagram" }).waitFor();
  assert.equal(await article.getByRole("group", { name: "Code, mermaid" }).textContent(), "this is no diagram at all");
  assert.deepEqual(page.problems, []);
});

test("long lines are wrapped where one wants that, everywhere and for good", async () => {
  const { page, article } = await answered("```text\n" + "word ".repeat(200) + "\n```");
  const pre = article.getByRole("group", { name: "Code, text" });
  const runs = () => pre.evaluate((element) => element.scrollWidth > element.clientWidth + 1);
  assert.equal(await runs(), true);
  await article.getByRole("button", { name: "Wrap long lines" }).click();
  assert.equal(await runs(), false);
  await page.reload();
  await pre.waitFor();
  assert.equal(await runs(), false);
});

test("the columns of a table stand as their heading says", async () => {
  const { article } = await answered(TABLE);
  await article.getByRole("table").waitFor();
  assert.deepEqual(await article.locator("td").evaluateAll((cells) => cells.map((cell) => getComputedStyle(cell).textAlign)), ["left", "center", "right"]);
});

test("looks in a row are one line that opens to each of them", async () => {
  const server = await sharedServer();
  const root = join(server.folder, "looks");
  await mkdir(root);
  for (const name of ["a.txt", "b.txt"]) await writeFile(join(root, name), `inside ${name}`);
  const id = await newSession(server, "Looks", "demo/tools", { workspace_root: root });
  await say(server, id, "!read a.txt\n!read b.txt\n!ls .");
  const page = await openSession(server, id);
  const article = page.getByRole("article", { name: "Assistant" }).last();
  const line = article.getByRole("button", { name: "Read 2 files, listed 1 folder" });
  await line.waitFor();
  assert.equal(await article.locator("[data-tool]").count(), 0);
  await line.press("Enter");
  assert.deepEqual(await article.locator("[data-tool]").evaluateAll((cards) => cards.map((card) => card.dataset.tool)), ["read", "read", "ls"]);
});

test("who asked for it is told when a session waits and nobody looks, and the tab's icon says it too", async () => {
  const server = await sharedServer();
  const root = join(server.folder, "told");
  await mkdir(root);
  const id = await newSession(server, "Told", "demo/tools", { workspace_root: root });
  const page = await openSession(server, id, {
    before: () => {
      window.told = [];
      window.Notification = class {
        static permission = "default";
        static async requestPermission() {
          return (this.permission = "granted");
        }
        constructor(title, { body }) {
          window.told.push(`${title}: ${body}`);
        }
        close() {}
      };
      Object.defineProperty(document, "hidden", { get: () => true });
    },
  });
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Notify me when a session is waiting or done").check();
  await page.keyboard.press("Escape");
  const icon = () => page.locator("link[rel=icon]").getAttribute("href");
  const quiet = await icon();
  await say(server, id, "!bash true");
  await until(async () => (await page.evaluate(() => window.told.join())) === "clew: Told is waiting for you", "nobody was told");
  assert.notEqual(await icon(), quiet);
});

test("an answer is given again by another model, and the time of each message is there", async () => {
  const { page, article, server, id } = await answered("once more");
  assert.match(await article.getByRole("group", { name: "This answer" }).locator("time").textContent(), /^\d\d:\d\d$/);
  await article.getByRole("button", { name: "Ask another model" }).click();
  await page.getByRole("menuitem", { name: "demo/tour" }).click();
  await until(async () => (await server.call("GET", `/api/sessions/${id}/messages`)).messages.at(-1).metadata.model.model_id === "tour", "another model");
  await page.getByRole("group", { name: "Versions" }).getByText("2/2").waitFor();
});
