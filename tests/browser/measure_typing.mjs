/**
 * Typing while 10,000 words stream, highlighted code among them: `make measure-web` prints the longest task of the page
 * meanwhile, on the clock and in the time that it had the processor, which a loaded machine does not lengthen; and how
 * long it took from a key to the paint that shows it.
 */
import { loadavg } from "node:os";
import { finish, startServer } from "./kit.mjs";
import { begin, composer, newSession, openSession, say, settled } from "./scenes.mjs";

const WORDS = Number(process.argv[2] ?? 10_000);
const CODE = "```python\ndef thread(clew):\n    return [turn for turn in clew if turn.head]\n```\n";

const server = await startServer({ shared: true });
const id = await newSession(server, "Ten thousand words", "demo/echo");
await say(server, id, CODE.repeat(20), "demo/echo");
const page = await openSession(server, id);
await page.evaluate(() => {
  const seen = { tasks: [], keys: [] };
  globalThis.seen = seen;
  new PerformanceObserver((list) => seen.tasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: "longtask" });
  addEventListener("keydown", (event) => {
    // After the frame that shows it was handed over: a message comes behind the paint.
    requestAnimationFrame(() => {
      const after = new MessageChannel();
      after.port1.onmessage = () => seen.keys.push(performance.now() - event.timeStamp);
      after.port2.postMessage(0);
    });
  }, true);
});
const browser = await page.context().browser().newBrowserCDPSession();
const traced = [];
browser.on("Tracing.dataCollected", ({ value }) => traced.push(...value.filter((event) => event.name === "thread_name" || event.tdur > 5000)));
await browser.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["toplevel"] } });
await composer(page).focus();
const load = loadavg()[0].toFixed(1);
let typed = 0;
/** Type until what was begun is at rest, on the server and on the page. */
async function typeUntil(over) {
  let rests = false;
  const ended = over().then(() => { rests = true; });
  for (; !rests; typed += 1) await page.keyboard.type("the thread leads out "[typed % 21], { delay: 15 });
  await ended;
}
// As fast as it goes, again and again, and once at the pace of a model.
for (const [words, name] of [...Array(4).fill([WORDS, "demo/long"]), [WORDS / 5, "demo/long:slow"]]) {
  await begin(server, id, `${words} words`, name);
  await typeUntil(async () => {
    await settled(server, id);
    await page.getByRole("button", { name: "Stop" }).waitFor({ state: "hidden" });
  });
}
const all = new Promise((resolve) => browser.once("Tracing.tracingComplete", resolve));
await browser.send("Tracing.end");
await all;
const main = new Set(traced.filter((event) => event.args?.name === "CrRendererMain").map((event) => event.tid));
const busiest = Math.max(0, ...traced.filter((event) => /RunTask/.test(event.name) && main.has(event.tid)).map((event) => event.tdur / 1000));
const { tasks, keys } = await page.evaluate(() => globalThis.seen);
const at = (share) => Math.round(keys.toSorted((a, b) => a - b)[Math.floor(share * (keys.length - 1))]);
console.log(`4 × ${WORDS.toLocaleString("en")} words as fast as they come and ${(WORDS / 5).toLocaleString("en")} at 50 a second while ${typed} keys were typed, load ${load}`);
console.log(`key → paint: median ${at(0.5)} ms, 95th percentile ${at(0.95)} ms, longest ${at(1)} ms`);
console.log(`tasks over 50 ms: ${tasks.length}, the longest ${Math.round(Math.max(0, ...tasks))} ms, by the processor's time ${Math.round(busiest)} ms`);
await finish();
