/**
 * Runs the cases of one file, by name as they are asked for on stdin, and tells what came of each on stdout, one JSON
 * object a line. The browser stays between them. By hand: `node runner.mjs page.test.mjs` runs all of them.
 */
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { cases, finishCase, finishFile } from "./kit.mjs";

const [file, mode] = process.argv.slice(2);
await import(pathToFileURL(resolve(file)));

async function run(name) {
  const told = { name, error: null };
  const began = performance.now();
  try {
    const body = cases.get(name);
    if (!body) throw new Error(`${file} has no case ${JSON.stringify(name)}`);
    await body();
  } catch (error) {
    told.error = String(error?.stack ?? error);
  }
  try {
    const problems = await finishCase();
    // What the page complained about often says why the case failed.
    if (problems.length) told.error = [told.error, "the page:", ...problems].filter(Boolean).join("\n  ");
  } catch (error) {
    told.error = [told.error, `closing: ${error?.stack ?? error}`].filter(Boolean).join("\n");
  }
  told.ms = Math.round(performance.now() - began);
  return told;
}

let failed = false;
if (mode === "--ask") {
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await run(JSON.parse(line)))}\n`);
  }
} else {
  for (const name of cases.keys()) {
    const { error, ms } = await run(name);
    failed ||= error !== null;
    console.log(`${error === null ? "ok" : "FAILED"}  ${name}  (${ms} ms)${error === null ? "" : `\n${error}`}`);
  }
}
await finishFile();
process.exit(failed ? 1 : 0);
