/** A short film of the real page for the README: `make film` writes docs/images/film.webp. Ask, approve, kill the server, continue. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { caption, frame, SIZE, type, write } from "./film_frames.mjs";
import { finish, startServer } from "./kit.mjs";
import { composer, model, newSession, openSession, until } from "./scenes.mjs";

const OUT = process.argv[2] ?? fileURLToPath(new URL("../../docs/images/film.webp", import.meta.url));

const server = await startServer({ shared: true });
const folder = join(server.folder, "labyrinth");
await mkdir(folder, { recursive: true });
await writeFile(join(folder, "tests.sh"), "for name in add half double; do echo test_$name passed; done\n");
const id = await newSession(server, "A test for the gate", "demo/tour", { workspace_root: folder });
const page = await openSession(server, id, SIZE);
page.allow(/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_EMPTY_RESPONSE|Failed to fetch|ERR_CONNECTION_RESET/);
await composer(page).waitFor();
await caption(page, "Ask");
await frame(page, 600);
await type(page, "Run `sh tests.sh`");
await composer(page).press("Enter");
await caption(page, "It asks before it acts");
const allow = page.getByRole("main").locator("[data-decision=once]:not([aria-disabled])");
await allow.waitFor();
await frame(page, 2200);
await allow.hover();
await frame(page, 500);
await allow.click();
await caption(page, "Approved: the command runs");
await until(async () => (await server.call("GET", `/api/sessions/${id}/status`)).state === "idle", "the command did not end");
await page.getByRole("main").getByText("test_double passed").first().waitFor();
await frame(page, 2000);

const answer = () => page.getByRole("article", { name: "Assistant" }).last().innerText();
await server.call("POST", `/api/sessions/${id}/prompt`, { text: "Tell me 120 words about the labyrinth", model: model("demo/long:slow") });
await caption(page, "A long answer streams");
for (let words = 20; words <= 60; words += 5) {
  await until(async () => (await answer()).split(/\s+/).length >= words, "nothing is streamed");
  await frame(page, 200);
}
await server.kill9();
await caption(page, "kill -9 the server");
const shown = (await answer()).split(/\s+/).length;
await page.getByText(/Connecting|Reconnecting|not reachable|offline|Disconnected/i).first().waitFor({ state: "attached" });
await frame(page, 2400);
await server.start();
await caption(page, "Start it again: every word that was shown is there");
await page.getByText("Connected").waitFor({ state: "attached" });

const goOn = page.getByRole("main").getByRole("button", { name: /^(Continue|Try again|Retry)/ }).last();
await goOn.waitFor();
if ((await answer()).split(/\s+/).length < shown) throw new Error("words were lost");
await frame(page, 3000);
await goOn.click();
await caption(page, "Continue");
for (let count = 0; count < 8; count += 1) {
  const before = await answer();
  await until(async () => (await answer()) !== before || (await server.call("GET", `/api/sessions/${id}/status`)).state === "idle", "it does not continue");
  await frame(page, 220);
}
await until(async () => (await server.call("GET", `/api/sessions/${id}/status`)).state === "idle", "the answer did not end");
await caption(page, "Nothing lost");
await frame(page, 2500);

await write(server, OUT, 3_000_000);
await finish();
