/** Pictures of the main states, taken of the real page: `make screenshots` writes them to docs/images. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { smaller } from "./small_png.mjs";
import { finish, openPage, startServer } from "./kit.mjs";
import { atRest, begin, composer, goTo, messagesOf, model, newSession, openSession, say, until } from "./scenes.mjs";

const OUT = process.argv[2] ?? fileURLToPath(new URL("../../docs/images", import.meta.url));
const LARGEST = 150_000;

async function talk(server, id, lines) {
  for (const line of lines) await say(server, id, line);
}

async function shot(page, name) {
  await page.mouse.move(640, 2);
  // What is being written never rests; it is drawn all the same.
  if (name !== "streaming" && (await page.getByRole("article").count()) > 0) await atRest(page);
  await page.evaluate(async () => {
    await document.fonts.ready;
    await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  });
  const picture = smaller(await page.screenshot());
  await writeFile(join(OUT, `${name}.png`), picture);
  console.log(`${name}.png  ${Math.round(picture.length / 1000)} kB`);
  if (picture.length > LARGEST) throw new Error(`${name}.png is too large`);
}

const answers = (page) => page.getByRole("article", { name: "Assistant" });

async function tree(server) {
  const id = await newSession(server, "Getting to know clew", "demo/tour");
  await talk(server, id, ["What is clew?", "How do I go back?", "Which models are there?"]);
  const messages = await messagesOf(server, id);
  const branch = await server.call("POST", `/api/sessions/${id}/branch`, { from_message_id: messages[3].id, metadata: { title: "What if the context is full?" } });
  await say(server, branch.id, "What when the context is full?");
  await server.call("POST", `/api/sessions/${id}/rewind`, { message_id: messages[4].id, mode: "edit" });
  await say(server, id, "How do permissions work?");
  return { id, branch: branch.id };
}

await mkdir(OUT, { recursive: true });
const server = await startServer({ shared: true });

// The list is filled first, so that every picture shows it.
const { id: planned, branch } = await tree(server);
const summarised = await newSession(server, "Everything about Ariadne");
for (let number = 0; number < 6; number += 1) await say(server, summarised, `Part ${number + 1} of the tale. ${"Ariadne holds the thread and waits at the gate. ".repeat(30)}`);
await server.call("POST", `/api/sessions/${summarised}/compact`, { focus: "who holds the thread" });
await say(server, summarised, "Who holds the thread now?");
const folder = join(server.folder, "labyrinth");
await mkdir(folder);
for (const name of ["gate.md", "north.stone", "south.stone"]) await writeFile(join(folder, name), `${name}\n`);
const asking = await newSession(server, "Count the stones", "demo/tools", { workspace_root: folder });
await talk(server, asking, ["!ls .", "!bash find . -name '*.stone' | wc -l"]);
const written = await newSession(server, "What survives a crash", "demo/tour");
await talk(server, written, ["What happens in a crash?", "How do I go back?"]);
const rtl = await newSession(server, "שיחה על המבוך ועל החוט של אריאדנה");
await say(server, rtl, "מה עושה תסאוס עם החוט?\n\nThe answer mixes עברית and English, with `code` in it.");
const empty = await newSession(server, "A new beginning", "demo/tour");

let page = await openSession(server, empty);
await page.getByRole("heading", { name: "Nothing said yet" }).waitFor();
await shot(page, "empty");

const streaming = await newSession(server, "A long tale", "demo/tour");
await say(server, streaming, "What survives a crash?");
await goTo(page, `#/s/${streaming}`);
await composer(page).waitFor();
await begin(server, streaming, "400", "demo/long:slow");
await until(async () => ((await answers(page).last().locator("p").allTextContents()).join(" ")).length > 420, "nothing is streamed");
await server.call("POST", `/api/sessions/${streaming}/prompt`, { text: "And what happens then?", model: model("demo/echo"), on_busy: "queue" });
await page.getByText("And what happens then?").waitFor();
await shot(page, "streaming");
await server.call("POST", `/api/sessions/${streaming}/abort`);

await goTo(page, `#/s/${asking}`);
await page.getByRole("button", { name: "Allow once" }).waitFor();
await shot(page, "approval");

await goTo(page, `#/s/${summarised}`);
await page.getByRole("button", { name: /^Summarised/ }).click();
await page.getByText("Kept in mind").waitFor();
await shot(page, "compaction");

await goTo(page, `#/s/${planned}`);
await page.getByRole("group", { name: /^(Hidden by a rewind|Versions)$/ }).first().waitFor();
await shot(page, "rewound");

await page.keyboard.press("Control+i");
await page.getByRole("tab", { name: "Tree" }).click();
await page.getByRole("tabpanel", { name: "Tree" }).getByText("What if the context is full?").waitFor();
await shot(page, "tree");
await page.getByRole("tab", { name: "Turn" }).click();
await page.getByText("Proven by its digest").waitFor();
await shot(page, "turn");
await page.keyboard.press("Control+i");

await goTo(page, `#/s/${planned}?beside=${branch}`);
await page.getByRole("region", { name: "Conversation beside" }).getByRole("article").last().waitFor();
await shot(page, "compare");

await goTo(page, `#/s/${rtl}`);
await answers(page).last().waitFor();
await shot(page, "right-to-left");

page = await openSession(server, written, { dark: true });
await answers(page).last().getByRole("heading", { name: "Going back" }).waitFor();
await page.keyboard.press("Control+i");
await page.getByRole("tab", { name: "Turn" }).click();
await page.getByText("Proven by its digest").waitFor();
await shot(page, "dark");
await goTo(page, `#/s/${planned}`);
await page.getByRole("tab", { name: "Tree" }).click();
await page.getByRole("tabpanel", { name: "Tree" }).getByText("What if the context is full?").waitFor();
await shot(page, "dark-tree");

page = await openSession(server, written, { width: 390, height: 780 });
await answers(page).last().getByRole("heading", { name: "Going back" }).waitFor();
await shot(page, "narrow");
await goTo(page, `#/s/${asking}`);
await page.getByRole("button", { name: "Allow once" }).waitFor();
await shot(page, "narrow-approval");

page = await openPage(await startServer({ shared: true }));
await page.getByRole("button", { name: "Load examples" }).waitFor();
await shot(page, "welcome");

await finish();
