/**
 * A session of 20,000 turns on the page: `make measure-web` prints the longest wait of each thing done with it, for the
 * server's answers and for what is drawn, and the memory the server needed.
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { finish, openPage, startServer } from "./kit.mjs";
import { composer, goTo, thread, until } from "./scenes.mjs";

const TURNS = Number(process.argv[2] ?? 20_000);
const ROOT = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
/** The last turns go through an engine, under the name of a model that the server knows: only a run notes what it counted. */
const FILL = `
import asyncio, sys, clew
from bench.fill import add_sessions, fill_turns
from clew.providers.base import ModelInfo
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from clew.transcript.session import Model

async def main(store, turns):
    echo = Model("demo", "echo")
    infos = [ModelInfo(model=echo, window=10**9, max_output=4_000, summariser=echo)]
    providers = FakeProviders({"demo": ScriptedModel([say("so it is")] * 4)}, infos=infos)
    async with clew.open(store, config=clew.Config(), providers=providers) as engine:
        session_id = await add_sessions(engine.store, engine.mint, 1, lambda _: {"title": "A long one"})
        await fill_turns(engine.store, engine.mint, session_id, range(turns - 4))
        for _ in range(4):
            await (await engine.submit(session_id, "go on")).wait()
        print(session_id)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
`;

const server = await startServer({ shared: true });
await server.stop();
const python = join(ROOT, ".venv", "bin", "python");
const id = execFileSync(python, ["-c", FILL, server.store, String(TURNS)], { cwd: ROOT, env: server.env, maxBuffer: 1 << 26 }).toString().trim().split("\n").at(-1);
await server.start();
const memory = (name) => Math.round(Number(new RegExp(`${name}:\\s+(\\d+)`).exec(readFileSync(`/proc/${server.pid}/status`, "utf8"))[1]) / 1024);
console.log(`${TURNS.toLocaleString("en")} turns; the server has ${memory("VmRSS")} MB`);

/** What the page asked for since the last look: how often, and the longest answer. */
const asked = [];
async function told(name, act) {
  asked.length = 0;
  const begin = performance.now();
  await act();
  const took = performance.now() - begin;
  const slowest = asked.toSorted((one, other) => other.ms - one.ms)[0];
  console.log(`${name}: ${Math.round(took)} ms; ${asked.length} answers, the longest ${Math.round(slowest?.ms ?? 0)} ms (${slowest?.path ?? "none"}); ${memory("VmRSS")} MB, at most ${memory("VmHWM")}`);
}

const page = await openPage(server);
page.on("requestfinished", (request) => {
  const { requestStart, responseEnd } = request.timing();
  const path = new URL(request.url()).pathname.replace(id, "…");
  if (path.startsWith("/api") && !/events|stream/.test(path)) asked.push({ path, ms: responseEnd - requestStart });
});
const { messages } = await server.call("GET", `/api/sessions/${id}/messages?limit=40`);
const last = () => thread(page).locator(`[data-row="${messages.at(-1).id}"]`).first();
await told("opened", async () => {
  await goTo(page, `#/s/${id}`);
  await last().waitFor();
});
await told("back to the start", async () => {
  await thread(page).focus();
  await page.keyboard.press("Home");
  await until(() => thread(page).evaluate((scroller) => scroller.scrollTop === 0 && scroller.scrollHeight > 100_000), "the start is not reached");
});
await told("the end again", async () => {
  await page.keyboard.press("End");
  await last().waitFor();
});
for (const q of ["session", "\"the end\""]) {
  await told(`searched for ${q}`, () => page.evaluate(async ([words, session, token]) => {
    const answer = await fetch(`/api/search?q=${encodeURIComponent(words)}&session=${session}`, { headers: { authorization: `Bearer ${token}` } });
    if (!answer.ok) throw new Error(await answer.text());
    await answer.json();
  }, [q, id, server.token]));
}
for (const tab of ["Tree", "Reflog", "Changes"]) {
  await told(`looked at: ${tab}`, async () => {
    await composer(page).fill(`/${tab.toLowerCase()}`);
    await page.keyboard.press("Enter");
    await page.getByRole("tab", { name: tab, selected: true }).waitFor();
    await until(() => asked.length > 0, `${tab} asked for nothing`);
  });
}
const ten = messages.filter((message) => message.role === "user").at(-10).id;
await told("rewound by 10", () => server.call("POST", `/api/sessions/${id}/rewind`, { message_id: ten, mode: "edit" }));
await told("shown on the page", () => last().waitFor({ state: "detached" }));
await told("un-rewound", () => server.call("POST", `/api/sessions/${id}/unrewind`));
const early = (await server.call("GET", `/api/sessions/${id}/reflog?limit=1&before=51`)).moves[0].to_turn_id;
await told("branched at turn 50", () => server.call("POST", `/api/turns/${early}/fork`, {}));
console.log(`the server needed at most ${memory("VmHWM")} MB`);
await page.context().close();
await finish();
