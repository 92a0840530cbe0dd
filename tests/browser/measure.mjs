/**
 * How long the page takes with a long session: `make measure-web` prints it. From the navigation until the last message is
 * drawn, and the longest frame while 5,000 messages are scrolled through.
 */
import { loadavg } from "node:os";
import { finish, newContext, openPage, startServer } from "./kit.mjs";
import { openSession, thread } from "./scenes.mjs";

const RUNS = Number(process.argv[2] ?? 7);
const MESSAGES = 5_000;

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
const spread = (values) => `${Math.round(median(values))} ms (${Math.round(Math.min(...values))}–${Math.round(Math.max(...values))})`;
const load = () => loadavg()[0].toFixed(1);

/** From the beginning of the navigation, as the browser's own clock counts it, until the words are drawn. */
async function drawn(page, words) {
  return page.evaluate(async (text) => {
    for (;;) {
      const rows = [...document.querySelectorAll("[aria-label=Messages] [data-row]")];
      const last = rows.at(-1);
      const seen = last?.textContent.includes(text) && getComputedStyle(last.parentElement).visibility !== "hidden" && last.getBoundingClientRect().top < innerHeight;
      if (seen) break;
      await new Promise((next) => requestAnimationFrame(next));
    }
    await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
    return performance.now();
  }, words);
}

const server = await startServer({ shared: true });
const { sessions } = await server.call("POST", "/api/examples");
const { id } = sessions.find((session) => session.title === "Sample: 2,000 turns");
console.log(`2,000 turns, ${RUNS} runs each, load ${load()} at the start`);

const cold = [];
for (let run = 0; run < RUNS; run += 1) {
  // A context of its own has neither the files nor the compiled script.
  const context = await newContext();
  const first = await openPage(server, { context, path: "/nothing.txt" }).catch(() => null);
  await first?.evaluate((token) => localStorage.setItem("clew.token", token), server.token);
  const page = await openPage(server, { context, path: `/#/s/${id}`, wait: "commit" });
  cold.push(await drawn(page, "(turn 2000)"));
  await context.close();
}
console.log(`cold: ${spread(cold)}`);

const warm = [];
const page = await openSession(server, id);
await drawn(page, "(turn 2000)");
for (let run = 0; run < RUNS; run += 1) {
  await page.reload({ waitUntil: "commit" });
  warm.push(await drawn(page, "(turn 2000)"));
}
console.log(`warm: ${spread(warm)}, load ${load()}`);

// 4,000 messages are in the sample: all of them upwards, and then a thousand down again.
const worst = [];
for (let run = 0; run < Math.min(3, RUNS); run += 1) {
  const reader = await openSession(server, id);
  await drawn(reader, "(turn 2000)");
  const frames = await thread(reader).evaluate(async (scroller, most) => {
    const times = [];
    let before = performance.now();
    let seen = 0;
    const rows = new Set();
    // A quick hand: half a screen a frame, up to the beginning and, for the rest, down again.
    for (let up = true; seen < most; ) {
      scroller.scrollTop += (up ? -0.5 : 0.5) * scroller.clientHeight;
      await new Promise((next) => requestAnimationFrame(next));
      const now = performance.now();
      times.push(now - before);
      before = now;
      for (const row of scroller.querySelectorAll("[data-row]")) {
        const key = `${up} ${row.dataset.row}`;
        if (!rows.has(key)) {
          rows.add(key);
          seen += 1;
        }
      }
      if (up && scroller.scrollTop === 0 && /\(turn 1\)/.test(scroller.textContent)) up = false;
    }
    return times;
  }, MESSAGES);
  frames.sort((a, b) => a - b);
  worst.push(frames.at(-1));
  console.log(`scrolled past ${MESSAGES.toLocaleString("en")} messages in ${frames.length} frames: median ${frames[frames.length >> 1].toFixed(1)} ms, p99 ${frames[Math.floor(frames.length * 0.99)].toFixed(1)} ms, worst ${frames.at(-1).toFixed(1)} ms, load ${load()}`);
  await reader.context().close();
}
console.log(`worst frame: ${spread(worst)}`);
await finish();
