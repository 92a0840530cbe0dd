/** A session of 2,000 turns: opened at its end, read to its beginning, and still quick. */
import assert from "node:assert/strict";
import { startServer, test } from "./kit.mjs";
import { atRest, begin, composer, openSession, thread, until } from "./scenes.mjs";

let shared;
function sample() {
  shared ??= (async () => {
    const server = await startServer({ shared: true });
    const { sessions } = await server.call("POST", "/api/examples");
    return { server, id: sessions.find((session) => session.title === "Sample: 2,000 turns").id };
  })();
  return shared;
}

/** The numbers of the turns whose messages are on the screen, top to bottom, and the largest gap between two rows. */
async function seen(page) {
  return thread(page).evaluate((scroller) => {
    const view = scroller.getBoundingClientRect();
    const rows = [...scroller.querySelectorAll("[data-row]")]
      .map((row) => ({ box: row.getBoundingClientRect(), shown: getComputedStyle(row.parentElement).visibility !== "hidden", text: row.textContent }))
      .filter(({ box, shown }) => shown && box.bottom > view.top && box.top < view.bottom)
      .sort((one, other) => one.box.top - other.box.top);
    const edges = [view.top, ...rows.flatMap(({ box }) => [box.top, box.bottom]), view.bottom];
    const gaps = [];
    for (let index = 0; index < edges.length; index += 2) gaps.push(edges[index + 1] - edges[index]);
    return {
      turns: rows.map(({ text }) => Number(/\(turn (\d+)\)/.exec(text)?.[1])),
      hole: Math.max(...gaps.slice(1, -1), 0),
      above: gaps[0],
      below: gaps.at(-1),
      top: scroller.scrollTop,
    };
  });
}

/** The turns in sight when nothing is on its way any more: the wheel has stopped, all rows are measured, no page is read. */
async function turnsAtRest(page, options) {
  await page.getByText("Reading earlier messages").waitFor({ state: "detached" });
  await atRest(page, options);
  return (await seen(page)).turns;
}

const contiguous = (turns) => turns.every((turn, index) => index === 0 || turn === turns[index - 1] || turn === turns[index - 1] + 1);

test("a session of 2,000 turns opens at its end", async () => {
  const { server, id } = await sample();
  const page = await openSession(server, id);
  await page.getByText("(turn 2000)").last().waitFor();
  const { turns } = await until(async () => {
    const now = await seen(page);
    return now.turns.at(-1) === 2000 && now;
  }, "the last turn is not in sight");
  assert.equal(contiguous(turns), true, String(turns));
  await page.getByRole("button", { name: "Jump to the end" }).waitFor({ state: "hidden" });
});

test("it scrolls to its first turn without a hole", async () => {
  const { server, id } = await sample();
  const page = await openSession(server, id);
  await page.getByText("(turn 2000)").last().waitFor();
  await thread(page).hover();
  let lowest = Infinity;
  for (let turn = 2000; turn > 1; ) {
    // A strong turn of the wheel: several screens at once.
    await page.mouse.wheel(0, -6000);
    // What is on the screen a moment later has neither a hole nor a jump in it.
    const now = await until(async () => {
      const view = await seen(page);
      return view.turns.length > 0 && view.above <= 24 && view.hole <= 24 && contiguous(view.turns) && view.turns[0] <= turn && view;
    }, () => `a hole stayed above turn ${turn}`);
    assert.equal(now.turns.every((number) => Number.isInteger(number)), true, String(now.turns));
    turn = now.turns[0];
    lowest = Math.min(lowest, turn);
  }
  assert.equal(lowest, 1);
  await page.mouse.wheel(0, -6000);
  await until(async () => (await seen(page)).top === 0, "there is something above the first turn");
});

test("Home and End go as far as the session does, also by keyboard", async () => {
  const { server, id } = await sample();
  const page = await openSession(server, id);
  await page.getByText("(turn 2000)").last().waitFor();
  await thread(page).focus();
  await page.keyboard.press("Home");
  await until(async () => {
    const { turns, top } = await seen(page);
    return turns[0] === 1 && top === 0;
  }, "Home does not reach the first turn");
  await page.keyboard.press("End");
  await until(async () => (await seen(page)).turns.at(-1) === 2000, "End does not reach the last turn");
  await page.keyboard.press("Home");
  await until(async () => (await seen(page)).turns[0] === 1, "Home does not reach the first turn again");
  await page.getByRole("button", { name: "Jump to the end" }).press("Enter");
  await until(async () => (await seen(page)).turns.at(-1) === 2000, "the button does not lead to the end");
  // The button is gone; the keys still scroll.
  await until(() => thread(page).evaluate((scroller) => scroller === document.activeElement), "the focus is lost with the button");
});

test("a stream at the end goes on while older pages are read, and is whole when the reader comes back", async () => {
  const { server, id } = await sample();
  const branch = await server.call("POST", `/api/sessions/${id}/branch`, {
    from_message_id: (await server.call("GET", `/api/sessions/${id}/messages?limit=1`)).messages.at(-1).id,
    metadata: { title: "The long one, going on" },
  });
  const page = await openSession(server, branch.id);
  await page.getByText("(turn 2000)").last().waitFor();
  await composer(page).waitFor();
  // So many words that only a stop ends it.
  await begin(server, branch.id, "100000", "demo/long:slow");
  await page.getByRole("button", { name: "Stop" }).waitFor();
  await thread(page).hover();
  for (let turn = 2000; turn > 1600; ) {
    const before = turn;
    const view = await until(async () => {
      const now = await seen(page);
      // At the top of what is read so far the wheel turns in vain until the next page is there; and the end has no number.
      if (!(now.turns[0] < before) || now.turns.some(Number.isNaN)) await page.mouse.wheel(0, -4000);
      return now.turns.length > 0 && now.turns[0] < before && now.above <= 24 && now.hole <= 24 && contiguous(now.turns) && now;
    }, () => `nothing above turn ${turn}`);
    turn = view.turns[0];
  }
  // Whoever reads far above is left there, though the end grows.
  const place = await turnsAtRest(page, { grow: true });
  await server.call("POST", `/api/sessions/${branch.id}/abort`);
  await page.getByRole("button", { name: "Stop" }).waitFor({ state: "detached" });
  assert.deepEqual(await turnsAtRest(page), place);
  await page.getByRole("button", { name: "Jump to the end" }).click();
  const { messages } = await server.call("GET", `/api/sessions/${branch.id}/messages?limit=1`);
  const said = messages[0].parts.find((part) => part.type === "text").text;
  const drawn = page.getByRole("article", { name: "Assistant" }).last();
  await until(async () => squeezed(await drawn.textContent()).includes(squeezed(said)), "the answer is not whole");
});

const squeezed = (text) => text.replace(/\s+/g, " ").trim();
