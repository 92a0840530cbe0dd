/**
 * Runs cases as they are asked for on stdin, `{file, case}`, and tells what came of each on stdout, one JSON object a
 * line; without a case, what the file's cases shared is given up. The browser stays between them.
 * By hand: `node runner.mjs page.test.mjs` runs all of a file.
 */
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { casesOf, finish, finishCase, finishFile, shownNow } from "./kit.mjs";

async function run(file, name) {
  const told = { name, error: null };
  const began = performance.now();
  try {
    const body = (await load(file)).get(name);
    if (!body) throw new Error(`${file} has no case ${JSON.stringify(name)}`);
    await body();
  } catch (error) {
    told.error = [String(error?.stack ?? error), ...(await shownNow())].join("\n");
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

/** A file that was given up is read anew: what its cases shared is gone. */
let generation = 0;
const load = (file) => casesOf(file, () => import(`${pathToFileURL(resolve(file))}?${generation}`));

let failed = false;
if (process.argv[2] === "--ask") {
  for await (const line of createInterface({ input: process.stdin })) {
    const { file, case: name } = JSON.parse(line);
    if (name !== null) {
      process.stdout.write(`${JSON.stringify(await run(file, name))}\n`);
      continue;
    }
    generation += 1;
    const error = await finishFile(file).then(() => null, (problem) => String(problem?.stack ?? problem));
    process.stdout.write(`${JSON.stringify({ error })}\n`);
  }
} else {
  for (const file of process.argv.slice(2)) {
    for (const name of (await load(file)).keys()) {
      const { error, ms } = await run(file, name);
      failed ||= error !== null;
      console.log(`${error === null ? "ok" : "FAILED"}  ${name}  (${ms} ms)${error === null ? "" : `\n${error}`}`);
    }
    await finishFile(file);
  }
}
await finish();
process.exit(failed ? 1 : 0);
