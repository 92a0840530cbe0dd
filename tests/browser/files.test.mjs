/** Files that go along, files that a model does not take, and commands that failed. */
import assert from "node:assert/strict";
import { startServer, test } from "./kit.mjs";
import { answers, composer, newSession, openSession, own, say, until } from "./talk.mjs";

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));

const attach = (page, ...files) => page.getByLabel("Files to attach").setInputFiles(files);
const stored = async (server, id) => (await server.call("GET", `/api/sessions/${id}/messages`)).messages;

test("a file the model does not take is refused in the composer, which keeps the text and the files", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/echo");
  const page = await openSession(server, id);
  await attach(page, { name: "song.mp3", mimeType: "audio/mpeg", buffer: Buffer.from("ID3\0\0\xff\xfb", "latin1") }, { name: "Makefile", mimeType: "", buffer: Buffer.from("all:\n\techo hi\n") });
  await composer(page).fill("What is this?");
  await composer(page).press("Enter");
  // Nothing is stored: the page says so once it knows what the model takes, the server before that.
  await page.getByRole("alert").getByText(/^.song\.mp3. \(audio\/mpeg\) cannot be sent to demo\/echo, which accepts text( in UTF-8)?, image\/png, image\/jpeg, image\/gif, image\/webp, application\/pdf\. Remove the file/).waitFor();
  await until(async () => (await composer(page).inputValue()) === "What is this?", "the text to come back");
  assert.deepEqual(await stored(server, id), []);
  await page.getByRole("list", { name: "Attached files" }).getByRole("button", { name: /^Remove/ }).first().click();
  await composer(page).press("Enter");
  await answers(page).getByText("[Makefile]").waitFor();
  await own(page).getByRole("button", { name: "Makefile" }).waitFor();
  const [message] = await stored(server, id);
  assert.deepEqual(message.parts.map(({ type, filename, mediaType }) => [type, filename, mediaType]).filter(([type]) => type === "file"), [["file", "Makefile", "text/plain"]]);
});

test("a command ends with its exit code, in red where it failed", async () => {
  const server = await sharedServer();
  const { id } = await newSession(server, "demo/tools", { workspace_root: server.folder });
  await server.call("PUT", `/api/sessions/${id}/permissions`, { rules: [{ permission: "bash", pattern: "*", action: "allow" }] });
  const page = await openSession(server, id);
  await say(page, "!bash echo well\n!bash echo broken; exit 7");
  const [well, broken] = [page.locator("[data-tool=bash]").nth(0), page.locator("[data-tool=bash]").nth(1)];
  await well.getByText("exit code 0", { exact: true }).waitFor();
  const code = broken.getByText("exit code 7", { exact: true });
  await code.waitFor();
  const red = await page.evaluate(() => {
    const probe = document.createElement("i");
    probe.className = "text-bad";
    document.body.append(probe);
    const colour = getComputedStyle(probe).color;
    probe.remove();
    return colour;
  });
  assert.equal(await code.evaluate((element) => getComputedStyle(element).color), red);
  await broken.getByRole("button").first().click();
  await broken.getByText("[exit code 7]").waitFor();
  const call = (await stored(server, id)).flatMap(({ parts }) => parts).filter(({ type }) => type === "tool-bash")[1];
  assert.deepEqual([call.state, call.output], ["output-available", { text: "broken\n[exit code 7]", exit_code: 7 }]);
});
