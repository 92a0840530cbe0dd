/** The page as the server hands it out, and the harness itself: what it must notice, it notices. */
import assert from "node:assert/strict";
import { audit, openPage, PATIENCE_MS, startServer, test } from "./kit.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));

test("the page loads without a complaint", async () => {
  const server = await sharedServer();
  const page = await openPage(server);
  assert.equal(await page.title(), "clew");
  assert.deepEqual(page.problems, []);
  assert.deepEqual(await audit(page), []);
});

test("the page loads in the dark and on a narrow screen", async () => {
  const server = await sharedServer();
  const page = await openPage(server, { width: 390, dark: true });
  const [width, dark] = await page.evaluate(() => [innerWidth, matchMedia("(prefers-color-scheme: dark)").matches]);
  assert.deepEqual([width, dark], [390, true]);
});

test("a server that was killed comes back on its port with its token", async () => {
  const server = await startServer();
  const { id } = await server.call("POST", "/api/sessions", { model: "demo/echo", title: "kept" });
  const before = [server.url, server.token, server.pid];
  await server.kill9();
  await assert.rejects(server.call("GET", "/api/sessions"));
  await server.restart();
  assert.deepEqual([server.url, server.token], before.slice(0, 2));
  assert.notEqual(server.pid, before[2]);
  const { sessions } = await server.call("GET", "/api/sessions");
  assert.deepEqual(sessions.map((session) => session.id), [id]);
});

test("what a page must not do is noticed", async () => {
  const server = await sharedServer();
  const page = await openPage(server);
  await page.evaluate(() => {
    console.error("something is wrong");
    setTimeout(() => {
      throw new Error("thrown");
    });
    const image = new Image();
    image.src = "http://elsewhere.test/x.png";
    const script = document.createElement("script");
    script.textContent = "window.ran = true";
    document.head.append(script);
  });
  const noticed = [/^console: something is wrong/, /^page error: Error: thrown/, /^policy: img-src/, /^policy: script-src-elem/];
  for (const pattern of noticed) {
    await until(() => page.problems.some((problem) => pattern.test(problem)), `${pattern} among ${page.problems}`);
  }
  assert.equal(await page.evaluate(() => window.ran), undefined);
  page.allow(/something is wrong/);
  assert.equal(page.problems.some((problem) => /something is wrong/.test(problem)), false);
  page.forgetProblems();
});

test("a request to another server is noticed and goes nowhere", async () => {
  const server = await sharedServer();
  const page = await openPage(server);
  await page.goto("http://elsewhere.test/").catch((error) => assert.match(String(error), /ERR_NAME_NOT_RESOLVED/));
  assert.deepEqual(page.problems, ["request: GET http://elsewhere.test/"]);
  page.forgetProblems();
});

test("axe finds what it should", async () => {
  const server = await sharedServer();
  const page = await openPage(server);
  await page.evaluate(() => document.body.append(document.createElement("button"), document.createElement("img")));
  assert.deepEqual((await audit(page)).map((line) => line.split(":")[0]), ["button-name", "image-alt"]);
});

async function until(holds, what) {
  for (const end = performance.now() + PATIENCE_MS; !holds(); ) {
    if (performance.now() > end) assert.fail(what);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
