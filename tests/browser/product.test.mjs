/** The example product, as two customers meet it: the real `useChat`, their own logins, and clew's page inside it. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { audit, buildPage, CLEW, newContext, openPage, startProgram, startServer, test } from "./kit.mjs";
import { composer, newSession, settled, until } from "./scenes.mjs";

const PNG = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC", "base64");

async function logIn(page, name, password) {
  await page.getByLabel("Name").fill(name);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("button", { name: "Log out" }).waitFor();
}

const spent = (page, text) => page.getByLabel("Spent").getByText(text).waitFor();

test("a customer attaches, allows and pays, and another one sees nothing of it", async () => {
  const front = await buildPage("examples/product/front");
  const server = await startProgram((folder) => ["-m", "tests.browser.desk_server", front, `sqlite:///${folder}/desk.db`]);
  const context = await newContext();
  const ann = await openPage(server, { path: "/", context });
  await logIn(ann, "ann", "lamp");
  await spent(ann, "0 calls, $0.0000");

  // A picture goes along; a clerk looks the order up; money is paid back only when she allows it.
  await ann.getByLabel("Files").setInputFiles({ name: "lamp.png", mimeType: "image/png", buffer: PNG });
  await ann.getByLabel("Message").fill("This lamp flickers. I want my money back.");
  await ann.getByRole("button", { name: "Send" }).click();
  await ann.getByRole("button", { name: "Allow" }).click();
  await ann.getByText("Done. Send it back with this label.").waitFor();
  await ann.getByText("49.00 € for Blue lamp go back to ann").waitFor();
  await ann.getByText("Order 7, a blue lamp.").waitFor();
  await spent(ann, "6 calls, $0.0900");
  const widths = () => ann.locator("article img").evaluateAll((all) => all.map((one) => one.naturalWidth));
  await until(async () => (await widths()).length === 2 && (await widths()).every((width) => width > 0));
  assert.equal((await widths())[1], 160);
  assert.deepEqual(await audit(ann), []);

  // What was said is stored: after a reload it is as it was.
  await ann.reload();
  await ann.getByRole("navigation", { name: "Chats" }).getByRole("button").click();
  await ann.getByText("Done. Send it back with this label.").waitFor();
  await until(async () => (await widths()).length === 2 && (await widths()).every((width) => width > 0));

  // clew's own page, below a path of the product's, knows her by the same cookie.
  const inside = await openPage(server, { path: "/inside/", context });
  await inside.getByRole("complementary", { name: "Sessions" }).getByRole("link", { name: /lamp/ }).first().click();
  await inside.getByText("Done. Send it back with this label.").waitFor();
  await inside.getByRole("img", { name: "label-7.png" }).waitFor();

  const stranger = await openPage(server, { path: "/inside/" });
  stranger.allow(/401/);
  await stranger.getByText("You are not logged in.").waitFor();

  const ben = await openPage(server, { path: "/" });
  await logIn(ben, "ben", "chair");
  await spent(ben, "0 calls, $0.0000");
  assert.equal(await ben.getByRole("navigation", { name: "Chats" }).getByRole("button").count(), 0);
  await ben.getByLabel("Message").fill("Hello");
  await ben.getByRole("button", { name: "Send" }).click();
  await ben.getByText("Hello Ben.").waitFor();
  await spent(ben, "1 calls, $0.0150");
  await ann.reload();
  await spent(ann, "6 calls, $0.0900");
  assert.equal(await ann.getByRole("navigation", { name: "Chats" }).getByRole("button").count(), 1);
});

test("the list of chats and the cost come late and move no button of a request, nor does an answer", async () => {
  const front = await buildPage("examples/product/front");
  for (const width of [1280, 390]) {
    const server = await startProgram((folder) => ["-m", "tests.browser.desk_server", front, `sqlite:///${folder}/desk.db`]);
    const ann = await openPage(server, { path: "/", width });
    let release;
    const released = new Promise((resolve) => (release = resolve));
    const older = Array.from({ length: 12 }, (_, n) => ({ id: `older-${n}`, title: `An older chat about a lamp ${n}` }));
    for (const path of ["/chats", "/spend"]) {
      await ann.route(`**${path}`, async (route) => {
        const response = await route.fetch();
        const json = await response.json();
        await released;
        await route.fulfill({ response, json: path === "/chats" ? [...json, ...older] : json });
      });
    }
    await logIn(ann, "ann", "lamp");
    await ann.getByLabel("Files").setInputFiles({ name: "lamp.png", mimeType: "image/png", buffer: PNG });
    await ann.getByLabel("Message").fill("This lamp flickers. I want my money back.");
    await ann.getByRole("button", { name: "Send" }).click();
    const place = async (text) => {
      const { top, bottom } = await ann.locator("main .answer").filter({ hasText: text }).evaluate((one) => one.getBoundingClientRect().toJSON());
      return { top, bottom };
    };
    await ann.getByRole("button", { name: "Allow" }).waitFor();
    const before = await place("Refuse");
    release();
    await spent(ann, "4 calls, $0.0600");
    await ann.getByRole("navigation", { name: "Chats" }).getByRole("button", { name: "An older chat about a lamp 11" }).waitFor();
    assert.deepEqual(await place("Refuse"), before);
    await ann.getByRole("button", { name: "Allow" }).click();
    await ann.getByText("Done. Send it back with this label.").waitFor();
    assert.deepEqual(await place("Allowed"), before);
    assert.deepEqual(await audit(ann), []);
  }
});

test("an owner opens the page by a token of their own, works there, and sees nothing of the rest", async () => {
  const server = await startServer();
  await newSession(server, "Of the administrator");
  const token = execFileSync(CLEW, ["token", "add", "ada", "--root", server.folder], { env: server.env, encoding: "utf8" }).trim().split(/\s+/).at(-1);
  const page = await openPage(server, { path: `/#token=${token}` });
  await page.getByText("Connected").waitFor({ state: "attached" });
  const sidebar = page.getByRole("complementary", { name: "Sessions" });
  assert.equal(await sidebar.getByText("Of the administrator").count(), 0);
  await composer(page).fill("Hello from Ada");
  await page.keyboard.press("Enter");
  await sidebar.getByRole("link", { name: /Hello from Ada/ }).waitFor();
  const [own] = (await server.call("GET", "/api/sessions?q=Ada")).sessions;
  await settled(server, own.id);
  assert.equal(own.owner, "ada");
  await page.reload();
  await sidebar.getByRole("link", { name: /Hello from Ada/ }).waitFor();
  assert.equal(await sidebar.getByText("Of the administrator").count(), 0);
});
