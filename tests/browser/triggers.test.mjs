/** Triggers on the page: what starts turns that nobody typed can be seen, made, stopped and followed. */
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { audit, openPage, startServer, test } from "./kit.mjs";
import { until } from "./talk.mjs";

async function openTriggers(server, options) {
  const page = await openPage(server, options);
  // On a narrow screen the list is a drawer.
  if (options?.width) await page.getByRole("button", { name: "Sessions" }).click();
  await page.getByRole("button", { name: "Triggers" }).click();
  return { page, dialog: page.getByRole("dialog", { name: "Triggers" }) };
}

test("a schedule is made, run now, paused, resumed and removed, and its turn is a click away", async () => {
  const server = await startServer();
  const { page, dialog } = await openTriggers(server);
  await dialog.getByLabel("How often").selectOption("weekdays");
  await dialog.getByLabel("At", { exact: true }).fill("09:30");
  await dialog.getByLabel("Time zone").fill("Europe/Vienna");
  await dialog.getByText(/^Next: .*; .*; /).waitFor();
  await dialog.getByLabel("Message").fill("good morning");
  await dialog.getByRole("button", { name: "Add a schedule" }).click();
  await dialog.getByText("Monday to Friday at 09:30 in Europe/Vienna").waitFor();
  await dialog.getByRole("button", { name: "Run now" }).click();
  await dialog.getByRole("button", { name: "Pause" }).click();
  await dialog.getByText("paused").waitFor();
  await dialog.getByRole("button", { name: "Resume" }).click();
  await dialog.getByText(/next \w+ \d/).waitFor();
  assert.deepEqual(await audit(page), []);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Triggers" }).click();
  await dialog.getByRole("link", { name: /Open the session/ }).first().click();
  await page.getByRole("main").getByText("good morning").first().waitFor();
  await page.getByRole("button", { name: "Triggers" }).click();
  await dialog.getByRole("button", { name: "Remove the schedule good morning" }).click();
  // Wait for the row itself to go.
  await dialog.getByRole("button", { name: "Remove the schedule good morning" }).waitFor({ state: "detached" });
  assert.deepEqual(await server.call("GET", "/api/schedules"), { schedules: [] });
});

test("a schedule that cannot be is refused in words, and what was typed stays", async () => {
  const server = await startServer();
  const { page, dialog } = await openTriggers(server);
  page.allow(/422/);
  await dialog.getByLabel("How often").selectOption("cron");
  await dialog.getByLabel("When").fill("every now and then");
  await dialog.getByLabel("Message").fill("hello");
  await dialog.getByRole("button", { name: "Add a schedule" }).click();
  await dialog.getByRole("alert").waitFor();
  assert.equal(await dialog.getByLabel("When").inputValue(), "every now and then");
});

test("a webhook's secret is shown once, and a delivery signed with it starts a turn", async () => {
  const server = await startServer();
  const { page, dialog } = await openTriggers(server, { width: 390 });
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
  await dialog.getByRole("textbox", { name: "Name" }).fill("deploys");
  await dialog.getByRole("button", { name: "Add a webhook" }).click();
  const secret = (await dialog.getByRole("status").locator("code").textContent()).trim();
  await dialog.getByRole("button", { name: "I have saved it" }).click();
  assert.equal(await dialog.getByText(secret).count(), 0);
  const [id, at, body] = ["msg_1", String(Math.floor(Date.now() / 1000)), '{"text":"version 2 is out"}'];
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const signature = createHmac("sha256", key).update(`${id}.${at}.${body}`).digest("base64");
  const answer = await fetch(`${server.url}/api/hooks/deploys`, {
    method: "POST",
    body,
    headers: { "webhook-id": id, "webhook-timestamp": at, "webhook-signature": `v1,${signature}` },
  });
  assert.equal(answer.status, 202);
  const { session_id } = JSON.parse(await answer.text());
  await until(async () => {
    const { messages } = await server.call("GET", `/api/sessions/${session_id}/messages`);
    return messages.length === 2 && JSON.stringify(messages[0].parts).includes("version 2 is out");
  }, "the delivery was not answered");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Triggers" }).click();
  await dialog.getByText("completed").first().waitFor();
});
