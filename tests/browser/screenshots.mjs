/** Pictures of the main states, taken of the real page: `make screenshots` writes them to docs/images. */
import { execFileSync } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { smaller } from "./small_png.mjs";
import { finish, openPage, startServer } from "./kit.mjs";
import { atRest, begin, composer, goTo, messagesOf, model, newSession as makeSession, openSession, say, until } from "./scenes.mjs";

const OUT = process.argv[2] ?? fileURLToPath(new URL("../../docs/images", import.meta.url));
const LARGEST = 200_000;
/** A desk, a small one and a phone, each by day and by night. */
const SIZES = [
  ["", { width: 1440, height: 900 }],
  ["-1024", { width: 1024, height: 768 }],
  ["-390", { width: 390, height: 844, touch: true }],
].flatMap(([name, size]) => [[name, size], [`${name}-dark`, { ...size, dark: true }]]);
const DESK = SIZES[0][1];

/** All of them work in one folder, which has a name that may be seen. */
async function newSession(server, title, name) {
  const workspace_root = join(server.folder, "labyrinth");
  await mkdir(workspace_root, { recursive: true });
  return makeSession(server, title, name, { workspace_root });
}

async function talk(server, id, lines) {
  for (const line of lines) await say(server, id, line);
}

async function shot(page, name) {
  await page.mouse.move(640, 2);
  // What is being written never rests; it is drawn all the same.
  if (!/^(streaming|work)/.test(name) && (await page.getByRole("article").count()) > 0) await atRest(page);
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
  return id;
}

await mkdir(OUT, { recursive: true });
const server = await startServer({ shared: true });

// The list is filled first, so that every picture shows it.
const planned = await tree(server);
const rewound = await newSession(server, "Taken back", "demo/tour");
await talk(server, rewound, ["What is clew?", "How do I go back?"]);
await server.call("POST", `/api/sessions/${rewound}/rewind`, { message_id: (await messagesOf(server, rewound))[2].id, mode: "edit" });
const summarised = await newSession(server, "Everything about Ariadne");
for (let number = 0; number < 6; number += 1) await say(server, summarised, `Part ${number + 1} of the tale. ${"Ariadne holds the thread and waits at the gate. ".repeat(30)}`);
await server.call("POST", `/api/sessions/${summarised}/compact`, { focus: "who holds the thread" });
await say(server, summarised, "Who holds the thread now?");
const folder = join(server.folder, "labyrinth");
await mkdir(folder, { recursive: true });
for (const name of ["gate.md", "north.stone", "south.stone"]) await writeFile(join(folder, name), `${name}\n`);
const mended = await newSession(server, "Mend the calculator", "demo/tour");
const beside = await newSession(server, "Write the tests", "demo/tour");
await writeFile(join(folder, "calc.py"), 'def add(a, b):\n    """The sum of two numbers."""\n    return a - b\n\n\ndef half(a):\n    return a / 2\n');
await writeFile(join(folder, "tests.sh"), "for n in add half double; do echo test_$n passed; done; cat gate\n");
execFileSync("mkfifo", [join(folder, "gate")]);
await server.call("PUT", `/api/sessions/${mended}/permissions`, { rules: [{ permission: "edit", pattern: "*", action: "allow" }] });
const order = `!edit ${JSON.stringify({ path: "calc.py", old: "    return a - b\n", new: "    return a + b\n" })}`;
await say(server, mended, order, "demo/tools");
// What the demo model is told with is no way to ask: in the picture it is said as a person would.
const exported = JSON.stringify(await server.call("GET", `/api/sessions/${mended}/export?format=json`));
const asked = JSON.parse(exported.replace(JSON.stringify(order).slice(1, -1), "`add` in calc.py subtracts. Mend it, and run the tests."));
const { id: work } = await server.call("POST", `/api/import?workspace=${encodeURIComponent(folder)}`, asked);
await server.call("DELETE", `/api/sessions/${mended}`);
await server.call("PATCH", `/api/sessions/${work}`, { title: "Mend the calculator" });
await server.call("PUT", `/api/sessions/${work}/permissions`, { rules: [{ permission: "bash", pattern: "sh tests.sh", action: "allow" }] });
await begin(server, work, "Run `sh tests.sh`", "demo/tour");
await server.call("POST", `/api/sessions/${work}/prompt`, { text: "Then write down what was wrong", on_busy: "queue" });
await say(server, beside, "Write test_add.py with assert add(2, 3) == 5");
const asking = await newSession(server, "Count the stones", "demo/tour");
await say(server, asking, "Run `find . -name '*.stone' | wc -l`");
const written = await newSession(server, "What survives a crash", "demo/tour");
await talk(server, written, ["What happens in a crash?", "How do I go back?"]);
const rtl = await newSession(server, "שיחה על המבוך ועל החוט של אריאדנה");
await say(server, rtl, "מה עושה תסאוס עם החוט?\n\nThe answer mixes עברית and English, with `code` in it.");
const empty = await newSession(server, "A new beginning", "demo/tour");

let page;
for (const [size, options] of SIZES) {
  page = await openSession(server, work, options);
  if (options.width === 1440) await goTo(page, `#/s/${work}?beside=${asking}`);
  await page.getByRole("main").getByRole("log").getByText("test_double passed").waitFor();
  await page.getByRole("main").getByRole("button", { name: /^edit calc.py/ }).click();
  await page.getByRole("main").getByRole("group", { name: "Change" }).waitFor();
  if (options.width === 1440) await page.getByRole("region", { name: "Side conversation" }).locator("[data-decision=once]:not([aria-disabled])").waitFor();
  await page.getByRole("main").getByRole("region", { name: "Messages" }).press("End");
  await page.getByRole("button", { name: "Jump to the end" }).waitFor({ state: "detached" });
  await page.evaluate(() => document.activeElement.blur());
  await shot(page, `work${size}`);
  if (size === "") continue;
  await goTo(page, `#/s/${beside}`);
  await page.locator("[data-decision=once]:not([aria-disabled])").waitFor();
  await shot(page, `approval${size}`);
}
await writeFile(join(folder, "gate"), "");

page = await openSession(server, empty, DESK);
await page.getByRole("heading", { name: "No messages yet" }).waitFor();
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

await goTo(page, `#/s/${beside}`);
await page.locator("[data-decision=once]:not([aria-disabled])").waitFor();
await shot(page, "approval");

await goTo(page, `#/s/${summarised}`);
await page.getByRole("button", { name: /^Summarised/ }).click();
await page.getByText("Focus:").waitFor();
await shot(page, "compaction");

await goTo(page, `#/s/${rewound}`);
const banner = page.getByRole("group", { name: "Undone messages" });
await banner.getByRole("button", { name: "Show" }).click();
await banner.getByRole("article").first().waitFor();
await shot(page, "rewound");
await goTo(page, `#/s/${planned}`);

await page.keyboard.press("Control+i");
await page.getByRole("tab", { name: "Tree" }).click();
await page.getByRole("tabpanel", { name: "Tree" }).getByText("What if the context is full?").waitFor();
await shot(page, "tree");
await page.getByRole("tab", { name: "Turn" }).click();
await page.getByText("Verified").waitFor();
await shot(page, "turn");
await page.keyboard.press("Control+i");

await goTo(page, `#/s/${planned}`);
await composer(page).fill("/compare");
await composer(page).press("Enter");
await page.getByRole("dialog").getByText("Differs from here").waitFor();
await shot(page, "compare");
await page.keyboard.press("Escape");

await goTo(page, `#/s/${rtl}`);
await answers(page).last().waitFor();
await shot(page, "right-to-left");

const gatehouse = join(server.folder, "gatehouse");
await mkdir(gatehouse, { recursive: true });
await writeFile(join(gatehouse, "gate.py"), 'HOST = "localhost"\nPORT = 80\n\n\ndef open_gate(name):\n    print(f"{name} is open")\n\n\ndef close_gate(name):\n    print(f"{name} is closed")\n\n\nDEBUG = False\n');
const opened = await makeSession(server, "Open the gate", "demo/tour", { workspace_root: gatehouse });
const allowed = [{ permission: "bash", pattern: "sed -i *", action: "allow" }, { permission: "write", pattern: "**", action: "allow" }];
await server.call("PUT", `/api/sessions/${opened}/permissions`, { rules: allowed });
await talk(server, opened, ["Run `sed -i 's/80/8080/;s/False/True/' gate.py`", "Write test_gate.py with assert PORT == 8080"]);
page = await openSession(server, opened, DESK);
await answers(page).last().waitFor();
await page.keyboard.press("Control+i");
await page.getByRole("tab", { name: "Changes" }).click();
for (const name of ["Modified gate.py", "Added test_gate.py"]) await page.getByRole("button", { name }).click();
await page.getByRole("group", { name: "Changes of test_gate.py" }).waitFor();
await page.getByRole("group", { name: "Changes of gate.py" }).waitFor();
await page.evaluate(() => document.activeElement.blur());
await shot(page, "changes");

page = await openSession(server, written, { ...DESK, dark: true });
await answers(page).last().getByRole("heading", { name: "Going back" }).waitFor();
await page.keyboard.press("Control+i");
await page.getByRole("tab", { name: "Turn" }).click();
await page.getByText("Verified").waitFor();
await shot(page, "dark");
await goTo(page, `#/s/${planned}`);
await page.getByRole("tab", { name: "Tree" }).click();
await page.getByRole("tabpanel", { name: "Tree" }).getByText("What if the context is full?").waitFor();
await shot(page, "dark-tree");

page = await openSession(server, written, SIZES[4][1]);
await answers(page).last().getByRole("heading", { name: "Going back" }).waitFor();
await shot(page, "narrow");
await goTo(page, `#/s/${planned}`);
await composer(page).fill("/compare");
await composer(page).press("Enter");
await page.getByRole("dialog").getByText("Differs from here").waitFor();
await shot(page, "compare-390");

page = await openPage(await startServer({ shared: true }), DESK);
// Where this runs is nobody's folder.
await page.route("**/api/server", async (route) => {
  const answer = await route.fetch();
  await route.fulfill({ response: answer, json: { ...(await answer.json()), workspace_root: "/home/ariadne/labyrinth" } });
});
await page.reload();
await page.getByRole("button", { name: "Load examples" }).waitFor();
await shot(page, "welcome");

await finish();
