/** A short film of the real page for the README: `make film` writes docs/images/film.webp. Ask, approve, kill the server, continue. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { finish, openPage, startServer } from "./kit.mjs";
import { composer, model, newSession, openSession, until } from "./scenes.mjs";

const OUT = process.argv[2] ?? fileURLToPath(new URL("../../docs/images/film.webp", import.meta.url));
const SIZE = { width: 960, height: 600 };
const LARGEST = 3_000_000;
const frames = []; // { picture: a WebP file, ms: how long it is shown }

// Frames

/** The page as it is now, shown for `ms`. A frame that equals the one before only prolongs it. */
async function frame(page, ms) {
  const png = await page.screenshot();
  if (frames.at(-1)?.png.equals(png)) frames.at(-1).ms += ms;
  else frames.push({ png, ms });
}

/** Chromium's own encoder, in a page of its own: the film's page allows no foreign pictures. */
async function encode(page) {
  for (const one of frames) {
    const url = await page.evaluate(async (base64) => {
      const bitmap = await createImageBitmap(await (await fetch(`data:image/png;base64,${base64}`)).blob());
      const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
      canvas.getContext("2d").drawImage(bitmap, 0, 0);
      const data = new Uint8Array(await (await canvas.convertToBlob({ type: "image/webp", quality: 0.75 })).arrayBuffer());
      return Array.from(data, (byte) => String.fromCharCode(byte)).join("");
    }, one.png.toString("base64"));
    one.picture = Buffer.from(url, "latin1");
  }
}

function chunk(name, data) {
  const size = Buffer.alloc(4);
  size.writeUInt32LE(data.length);
  return Buffer.concat([Buffer.from(name), size, data, Buffer.alloc(data.length % 2)]);
}

const three = (number) => Buffer.from([number & 255, (number >> 8) & 255, (number >> 16) & 255]);

/** The chunks of a still that hold its image; a colour profile, for one, has no place in a frame. */
function imageOf(picture) {
  const found = [];
  for (let at = 12; at < picture.length; ) {
    const end = at + 8 + picture.readUInt32LE(at + 4) + (picture.readUInt32LE(at + 4) % 2);
    if (["ALPH", "VP8 ", "VP8L"].includes(picture.toString("latin1", at, at + 4))) found.push(picture.subarray(at, end));
    at = end;
  }
  return Buffer.concat(found);
}

/** One animated WebP of the stills. */
function animated() {
  const extents = Buffer.concat([three(SIZE.width - 1), three(SIZE.height - 1)]);
  const canvas = chunk("VP8X", Buffer.concat([Buffer.from([2, 0, 0, 0]), extents]));
  const loop = chunk("ANIM", Buffer.from([255, 255, 255, 255, 0, 0]));
  const pictures = frames.map(({ picture, ms }) => chunk("ANMF", Buffer.concat([three(0), three(0), extents, three(ms), Buffer.from([2]), imageOf(picture)])));
  return chunk("RIFF", Buffer.concat([Buffer.from("WEBP"), canvas, loop, ...pictures]));
}

// The scene

/** What happens, in one line at the lower edge. Set through the object model, which the page's policy allows. */
async function caption(page, text) {
  await page.evaluate((given) => {
    const bar = document.getElementById("caption") ?? document.body.appendChild(Object.assign(document.createElement("div"), { id: "caption" }));
    Object.assign(bar.style, {
      position: "fixed", left: "50%", top: "10px", transform: "translateX(-50%)", zIndex: "9999", padding: "6px 16px", borderRadius: "999px",
      background: "#1c1917", color: "#fafaf9", font: "600 15px system-ui, sans-serif", whiteSpace: "nowrap", pointerEvents: "none",
    });
    bar.textContent = given;
  }, text);
}

async function type(page, text) {
  await composer(page).focus();
  for (let at = 0; at < text.length; at += 4) {
    await composer(page).pressSequentially(text.slice(at, at + 4));
    await frame(page, 120);
  }
  await frame(page, 400);
}

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

await encode(await openPage(server, { path: "/api/health", width: 200, height: 100 }));
const film = animated();
await writeFile(OUT, film);
console.log(`${frames.length} frames, ${Math.round(frames.reduce((sum, { ms }) => sum + ms, 0) / 1000)} s, ${Math.round(film.length / 1000)} kB`);
if (film.length > LARGEST) throw new Error("the film is too large");
await finish();
