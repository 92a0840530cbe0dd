/**
 * What a browser test stands on: the real server, the real Chromium, and a page that is watched.
 *
 * Cases are registered with `test(name, body)`; `runner.mjs` runs them by name. Whatever a case opened is closed after
 * it, and a page that complained, broke its policy or called anybody but its server fails the case.
 */
import { spawn } from "node:child_process";
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createServer, request as requestOf } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
export const CLEW = process.env.CLEW_BIN ?? join(ROOT, ".venv", "bin", "clew");
const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  // Whatever a page is made to ask for, nothing leaves this machine.
  "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];
/** When a case gives up. Nothing waits longer than it must, so that a loaded machine costs time and never a case. */
export const PATIENCE_MS = 60_000;

const files = new Map(); // the cases of each file that was read
let reading; // those of the file that is being read
let browser;
const kept = []; // closed when the file is done
const opened = []; // closed when the case is done
const watched = []; // problems of the pages of the case

/** Register a case. Its name is a sentence, written out where it stands: pytest reads it from there. */
export function test(name, body) {
  if (reading.has(name)) throw new Error(`there are two cases ${JSON.stringify(name)}`);
  reading.set(name, body);
}

/** The cases of a file, read when they are first asked for. */
export async function casesOf(file, read) {
  if (!files.has(file)) {
    reading = new Map();
    await read();
    files.set(file, reading);
  }
  return files.get(file);
}

/** A server of its own on a store of its own. `shared` ones live as long as the file's cases. `opens` is a module of Python
 *  whose `open_engine` opens the store. */
export async function startServer({ store, env = {}, shared = false, opens } = {}) {
  const folder = await mkdtemp(join(tmpdir(), "clew-browser-"));
  if (opens) await writeFile(join(folder, "host_of_case.py"), opens);
  const server = new Server(folder, store ?? `sqlite:///${folder}/store.db`, env, opens ? ["--app", "host_of_case:open_engine"] : []);
  (shared ? kept : opened).push(() => server.remove());
  await server.start();
  return server;
}

/** An address in front of a server, whose connections can be cut. `exchanges` are the requests through it, with what was answered. */
export async function startProxy(server) {
  const exchanges = [];
  let isDown = false;
  const proxy = createServer((asked, answer) => {
    if (isDown) return asked.socket.destroy();
    const exchange = { asked: `${asked.method} ${asked.url}`, answered: "" };
    exchanges.push(exchange);
    const { method, url: path } = asked;
    // The server answers only to its own page.
    const headers = { ...asked.headers, host: new URL(server.url).host, ...(asked.headers.origin && { origin: server.url }) };
    const onward = requestOf(server.url, { method, path, headers }, (found) => {
      answer.writeHead(found.statusCode, found.headers).flushHeaders();
      found.on("data", (data) => (exchange.answered += data));
      found.on("error", () => answer.destroy());
      found.pipe(answer);
    });
    onward.on("error", () => answer.destroy());
    answer.on("close", () => onward.destroy());
    asked.pipe(onward);
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${proxy.address().port}`;
  const cut = () => {
    isDown = true;
    proxy.closeAllConnections();
  };
  opened.push(() => (cut(), new Promise((resolve) => proxy.close(resolve))));
  return { url, token: server.token, address: `${url}/#token=${server.token}`, exchanges, cut, restore: () => (isDown = false) };
}

/** A Python program of this repository's that prints its address; `words` are told its folder. */
export async function startProgram(words) {
  const folder = await mkdtemp(join(tmpdir(), "clew-browser-"));
  const home = { HOME: folder, XDG_CONFIG_HOME: join(folder, "config"), XDG_DATA_HOME: join(folder, "data") };
  const process_ = spawn(join(dirname(CLEW), "python"), words(folder), { cwd: ROOT, env: { ...process.env, ...home } });
  const gone = new Promise((resolve) => process_.once("exit", resolve));
  let log = "";
  process_.stderr.on("data", (data) => (log = (log + data).slice(-20_000)));
  opened.push(async () => {
    process_.kill("SIGTERM");
    await gone;
    await rm(folder, { recursive: true, force: true });
  });
  const url = await within(PATIENCE_MS, "the program did not start", firstLine(process_, () => log));
  return new Replica(url, "", folder);
}

/** A page built from its sources, with the modules of clew's own page; the folder it lies in. */
export async function buildPage(source) {
  const folder = await mkdtemp(join(tmpdir(), "clew-page-"));
  opened.push(() => rm(folder, { recursive: true, force: true }));
  await cp(join(ROOT, source), folder, { recursive: true });
  await symlink(join(ROOT, "web", "node_modules"), join(folder, "node_modules"));
  const vite = createRequire(join(ROOT, "web", "package.json")).resolve("vite");
  const { build } = await import(pathToFileURL(vite));
  const outDir = join(folder, "built");
  await build({ root: folder, configFile: false, logLevel: "silent", build: { outDir, emptyOutDir: true } });
  return outDir;
}

/** Three replicas on a PostgreSQL and a Valkey of their own, as `make serve-cluster` starts them. */
export async function startCluster() {
  const words = ["-m", "tests.services", "--port", "0"];
  const folder = await mkdtemp(join(tmpdir(), "clew-browser-"));
  const home = { HOME: folder, XDG_CONFIG_HOME: join(folder, "config"), XDG_DATA_HOME: join(folder, "data") };
  const cluster = spawn(join(dirname(CLEW), "python"), words, { cwd: ROOT, env: { ...process.env, ...home } });
  let log = "";
  cluster.stderr.on("data", (data) => (log = (log + data).slice(-20_000)));
  const gone = new Promise((resolve) => cluster.once("exit", resolve));
  opened.push(async () => {
    cluster.kill("SIGTERM");
    await gone;
    await rm(folder, { recursive: true, force: true });
  });
  const replicas = [];
  const up = (async () => {
    for await (const line of createInterface({ input: cluster.stdout })) {
      const [, url, token] = /^clew +(http:\S+)\/#token=(\S+)$/.exec(line) ?? [];
      if (url) replicas.push(new Replica(url, token, folder));
      if (line.startsWith("Ctrl-C")) return;
    }
    throw new Error(`the cluster did not start: ${log}`);
  })();
  await within(PATIENCE_MS, "the cluster did not start", up);
  return replicas;
}

/** A server that somebody else started. */
class Replica {
  constructor(url, token, folder) {
    this.url = url;
    this.token = token;
    this.address = `${url}/#token=${token}`;
    this.folder = folder;
  }

  /** A call of the API as a program makes it; the answer as JSON, null for none. */
  async call(method, path, body) {
    const answer = await fetch(this.url + path, {
      method,
      headers: { authorization: `Bearer ${this.token}`, "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path} answered ${answer.status}: ${text}`);
    return text ? JSON.parse(text) : null;
  }
}

class Server extends Replica {
  #process;
  #gone;

  constructor(folder, store, env, more = []) {
    super();
    this.folder = folder;
    this.store = store;
    this.more = more;
    this.port = 0;
    this.log = "";
    const home = { HOME: folder, XDG_CONFIG_HOME: join(folder, "config"), XDG_DATA_HOME: join(folder, "data") };
    this.env = { ...process.env, ...home, ...env };
    for (const name of Object.keys(this.env)) {
      if (name === "CLEW_TOKEN" || name === "CLEW_STORE" || name.endsWith("_API_KEY")) delete this.env[name];
    }
    Object.assign(this.env, env);
  }

  get pid() {
    return this.#process?.pid;
  }

  /** Start, or start again on the same port and store. */
  async start() {
    const words = ["serve", "--port", String(this.port), "--store", this.store, ...this.more];
    const process_ = spawn(CLEW, words, { cwd: this.folder, env: this.env, stdio: ["ignore", "pipe", "pipe"] });
    this.#process = process_;
    this.#gone = new Promise((resolve) => process_.once("exit", resolve));
    process_.stderr.on("data", (data) => (this.log = (this.log + data).slice(-20_000)));
    const line = await within(PATIENCE_MS, "the server did not start", firstLine(process_, () => this.log));
    const [, base, token] = /^clew (http:\S+)\/#token=(\S+)$/.exec(line) ?? [];
    if (!base) throw new Error(`the server said ${JSON.stringify(line)}`);
    this.url = base;
    this.token = token;
    this.address = `${base}/#token=${token}`;
    this.port = Number(new URL(base).port);
  }

  /** The end nobody prepared for. */
  async kill9() {
    this.#process.kill("SIGKILL");
    await this.#gone;
  }

  /** The end in good order. */
  async stop() {
    if (this.#process && this.#process.exitCode === null && this.#process.signalCode === null) {
      this.#process.kill("SIGTERM");
      await within(PATIENCE_MS, "the server did not end", this.#gone);
    }
  }

  async restart() {
    await this.stop();
    await this.start();
  }

  async remove() {
    await this.stop();
    await rm(this.folder, { recursive: true, force: true });
  }
}

/**
 * The server's page in a window of its own. `context` shares storage with another window; `path` is what follows the
 * server's address, the token's fragment unless said.
 */
export async function openPage(server, options = {}) {
  const { width = 1280, height = 800, dark = false, touch = false, path, context: given, wait = "load", before } = options;
  const context = given ?? (await newContext({ width, height, dark, touch }));
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  await watch(page, server);
  if (before) await page.addInitScript(before);
  await page.goto(path === undefined ? server.address : server.url + path, { waitUntil: wait });
  return page;
}

/** A window's own storage: what one person's browser holds. */
export async function newContext({ width = 1280, height = 800, dark = false, touch = false } = {}) {
  browser ??= await launch();
  const context = await browser.newContext({
    viewport: { width, height },
    hasTouch: touch,
    isMobile: touch,
    colorScheme: dark ? "dark" : "light",
    reducedMotion: "reduce",
    locale: "en-GB",
    timezoneId: "UTC",
  });
  opened.push(() => context.close());
  return context;
}

/** Everything about a page that must not happen is noted in `page.problems`; `page.allow(/…/)` says what may. */
async function watch(page, server) {
  const allowed = [];
  const seen = [];
  const note = (text) => seen.push(text);
  page.allow = (pattern) => allowed.push(pattern);
  Object.defineProperty(page, "problems", {
    get: () => seen.filter((text) => !allowed.some((pattern) => pattern.test(text))),
  });
  page.forgetProblems = () => seen.splice(0);
  watched.push(page);
  page.on("console", (message) => {
    if (message.type() === "error") note(`console: ${message.text()} (${message.location().url})`);
  });
  page.on("pageerror", (error) => note(`page error: ${error.stack ?? error}`));
  page.on("crash", () => note("the page crashed"));
  page.on("websocket", (socket) => note(`socket: ${socket.url()}`));
  page.on("request", (request) => {
    const url = request.url();
    const own = url.startsWith(`${server.url}/`) || url === server.url || /^(data|blob|about):/.test(url);
    if (!own) note(`request: ${request.method()} ${url}`);
  });
  await page.exposeBinding("clewViolation", (_, text) => note(`policy: ${text}`));
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      window.clewViolation(`${event.effectiveDirective} ${event.blockedURI}`);
    });
  });
}

/** What axe finds on a page that is serious or worse, one line each. */
export async function audit(page, { tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] } = {}) {
  if (!(await page.evaluate(() => "axe" in window))) {
    await page.evaluate(await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8"));
  }
  const options = { runOnly: { type: "tag", values: tags }, resultTypes: ["violations"] };
  const found = await page.evaluate((given) => window.axe.run(document, given), options);
  return found.violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, help, nodes }) => `${id}: ${help} at ${nodes.map(({ target }) => target.join(" ")).join(", ")}`);
}

/** The end of what each open page shows, for whoever reads that a case failed. */
export async function shownNow() {
  const look = () => {
    const fields = [...document.querySelectorAll("input, textarea")].map((one) => `${one.ariaLabel ?? one.name}: ${JSON.stringify(one.value)}`);
    return `${document.body.innerText.slice(-1500)}\n${fields.join("\n")}\nfocus: ${document.activeElement?.outerHTML.slice(0, 200)}`;
  };
  const shown = watched.map((page) => page.evaluate(look).catch((error) => String(error)));
  return (await Promise.all(shown)).map((text, at) => `page ${at + 1} showed, at its end:\n${text}`);
}

/** Close what a case opened; what its pages complained about. */
export async function finishCase() {
  const problems = watched.splice(0).flatMap((page) => page.problems);
  for (const close of opened.splice(0).reverse()) await close();
  return problems;
}

export async function finishFile(file) {
  files.delete(file);
  await finishCase();
  for (const close of kept.splice(0).reverse()) await close();
}

export async function finish() {
  await finishFile();
  await browser?.close();
}

async function launch() {
  const executablePath = process.env.CLEW_CHROMIUM;
  if (!executablePath) throw new Error("CLEW_CHROMIUM does not name a Chromium");
  return chromium.launch({ executablePath, args: FLAGS, headless: true });
}

async function firstLine(process_, log) {
  const lines = createInterface({ input: process_.stdout });
  return new Promise((resolve, reject) => {
    lines.once("line", resolve);
    process_.once("error", reject);
    process_.once("exit", (code) => reject(new Error(`the server ended with ${code}: ${log()}`)));
  });
}

async function within(ms, what, promise) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error(what)), ms)));
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** The next frame comes as late as the test likes. */
export function holdFrames(page) {
  return page.evaluate(() => {
    const frames = [];
    const real = window.requestAnimationFrame;
    window.requestAnimationFrame = (frame) => frames.push(frame);
    window.letGo = () => {
      window.requestAnimationFrame = real;
      frames.forEach((frame) => real(frame));
      return new Promise((resolve) => real(() => resolve()));
    };
  });
}

export function letFramesGo(page) {
  return page.evaluate(() => window.letGo());
}
