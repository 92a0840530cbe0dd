/** On a phone, and between a phone and a desk: targets a finger hits, fields that do not zoom, nothing under anything else. */
import assert from "node:assert/strict";
import { openPage, startServer, test } from "./kit.mjs";
import { begin, composer, goTo, rests, say, send, until } from "./session.mjs";

const PHONE = { width: 390, height: 844, touch: true };
let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));

/** What can be touched and is smaller than a finger, or can be written in and would make the page zoom. */
async function small(page) {
  return page.evaluate(() => {
    const seen = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && element.getClientRects().length > 0;
    const touched = [...document.querySelectorAll("button, select, summary, input, textarea, [role=tab], nav a")].filter(seen).filter((one) => !one.closest(".react-flow"));
    const name = (one) => one.ariaLabel || one.innerText?.trim().slice(0, 40) || one.name || one.outerHTML.slice(0, 80);
    return touched.flatMap((one) => {
      const { width, height } = (one.matches("[type=checkbox], [type=radio]") ? (one.closest("label") ?? one) : one).getBoundingClientRect();
      const zooms = one.matches("input, textarea, select") && parseFloat(getComputedStyle(one).fontSize) < 16;
      return width < 43.5 || height < 43.5 || zooms ? [`${name(one)} ${Math.round(width)}×${Math.round(height)}${zooms ? " zooms" : ""}`] : [];
    });
  });
}

test("on a phone everything is as large as a finger, and no key is spoken of", async () => {
  const server = await sharedServer();
  const id = await begin(server, { model: "demo/tools", title: "In hand" });
  await say(server, id, "hello **there**, `code`\n\n```py\nprint(1)\n```");
  const page = await openPage(server, PHONE);
  const found = {};
  const look = async (state) => (found[state] = await small(page));
  await page.getByRole("main").waitFor();
  await look("beginning");
  // What there is to be said fits into its one line.
  assert.equal(await composer(page).getAttribute("placeholder"), "Write a message");
  await page.getByRole("button", { name: "Sessions", exact: true }).tap();
  await look("list");
  // Nothing of the list reaches out of it, and what can be pressed covers nothing that is read.
  const list = page.getByRole("complementary", { name: "Sessions" });
  const row = page.getByRole("listitem").filter({ hasText: "In hand" });
  const [edge, time, menu] = await Promise.all([list, row.locator("time"), row.getByRole("button", { name: "Actions for In hand" })].map((one) => one.boundingBox()));
  assert.ok(time.x + time.width <= menu.x && menu.x + menu.width <= edge.x + edge.width, JSON.stringify({ edge, time, menu }));
  assert.deepEqual(await list.locator("footer").evaluate((foot) => foot.scrollWidth <= foot.clientWidth), true);
  await list.getByRole("button", { name: "Search everything" }).tap();
  await page.getByRole("dialog").getByRole("combobox").fill("In hand");
  await look("palette");
  await page.getByRole("option", { name: /In hand/ }).first().tap();
  await goTo(page, id);
  await send(page, "!bash echo one");
  await page.getByRole("group", { name: "Approve this command?" }).waitFor();
  await look("asked");
  await page.getByRole("button", { name: "Deny", exact: true }).tap();
  await look("denying");
  await send(page, "after it");
  await page.getByRole("list", { name: "Queued messages" }).waitFor();
  await look("queued");
  await page.getByRole("button", { name: "Allow once", exact: true }).tap();
  await rests(server, id);
  await until(async () => (await page.getByRole("list", { name: "Queued messages" }).count()) === 0, "the queue to be empty");
  await send(page, "/rules");
  for (const tab of ["Turn", "Reflog", "Changes", "Rules"]) {
    await page.getByRole("tab", { name: tab }).tap();
    await look(tab);
  }
  assert.deepEqual(found, Object.fromEntries(Object.keys(found).map((state) => [state, []])));
  await page.getByRole("button", { name: "Close the inspector" }).tap();
  assert.doesNotMatch(await page.locator("body").innerText(), /Ctrl|Shift Enter/);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), "nothing is wider than the screen");
});

test("the page can be installed, and the inspector covers nothing at 1024", async () => {
  const server = await sharedServer();
  const id = await begin(server, { title: "Between" });
  const page = await openPage(server, { width: 1024, height: 768 });
  const manifest = await page.evaluate(async () => {
    const link = document.querySelector("link[rel=manifest]");
    const answer = await (await fetch(link.href)).json();
    const icons = await Promise.all(answer.icons.map(async ({ src }) => (await fetch(new URL(src, link.href))).headers.get("content-type")));
    return { start: new URL(answer.start_url, link.href).pathname, display: answer.display, icons };
  });
  assert.deepEqual(manifest, { start: "/", display: "standalone", icons: ["image/png", "image/png"] });
  await goTo(page, id);
  await page.keyboard.press("Control+i");
  const inspector = await page.getByRole("complementary", { name: "Inspector" }).boundingBox();
  const form = await page.getByRole("form", { name: "Write a message" }).boundingBox();
  assert.ok(form.x + form.width <= inspector.x && form.width > 350, JSON.stringify({ form, inspector }));
  await composer(page).click();
});
