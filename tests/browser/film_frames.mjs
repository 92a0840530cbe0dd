/** An animated WebP of the real page, frame by frame. */
import { writeFile } from "node:fs/promises";
import { openPage } from "./kit.mjs";
import { composer } from "./scenes.mjs";

export const SIZE = { width: 960, height: 600 };
const frames = []; // { picture: a WebP file, ms: how long it is shown }

// Frames

/** The page as it is now, shown for `ms`. A frame that equals the one before only prolongs it. */
export async function frame(page, ms) {
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
export async function caption(page, text) {
  await page.evaluate((given) => {
    const bar = document.getElementById("caption") ?? document.body.appendChild(Object.assign(document.createElement("div"), { id: "caption" }));
    Object.assign(bar.style, {
      position: "fixed", left: "50%", top: "10px", transform: "translateX(-50%)", zIndex: "9999", padding: "6px 16px", borderRadius: "999px",
      background: "#1c1917", color: "#fafaf9", font: "600 15px system-ui, sans-serif", whiteSpace: "nowrap", pointerEvents: "none",
    });
    bar.textContent = given;
  }, text);
}

export async function type(page, text) {
  await composer(page).focus();
  for (let at = 0; at < text.length; at += 4) {
    await composer(page).pressSequentially(text.slice(at, at + 4));
    await frame(page, 120);
  }
  await frame(page, 400);
}

/** Writes the frames as a film; fails if it is larger than that. */
export async function write(server, out, largest) {
  await encode(await openPage(server, { path: "/api/health", width: 200, height: 100 }));
  const film = animated();
  await writeFile(out, film);
  console.log(`${frames.length} frames, ${Math.round(frames.reduce((sum, { ms }) => sum + ms, 0) / 1000)} s, ${Math.round(film.length / 1000)} kB`);
  if (film.length > largest) throw new Error("the film is too large");
}
