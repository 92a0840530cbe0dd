/** Files mentioned with @: completed while typing, shown before sending, and attached from the workspace. */

import type { FileUIPart } from 'ai';
import type { Client } from '../api/client';
import type { Completion } from './commands';

/** The place to look up files in: a session, or the folder of a session to be created. */
export type FileOwner = { session: string } | { workspace: string };

const MAX_MENTIONS = 10;

/** Return the mention that ends at the caret, and its start, or null. */
export function mentionAt(text: string, caret: number): { typed: string; from: number } | null {
  const found = /(?:^|\s)@('[^'\n]*|\S*)$/.exec(text.slice(0, caret))?.[1];
  return found === undefined ? null : { typed: found.replace(/^'/, ''), from: caret - found.length };
}

/** Return the completions of the mention at the caret. */
export function fileCompletions(text: string, caret: number, files: readonly string[]): Completion[] {
  const named = mentionAt(text, caret);
  if (named === null) return [];
  const before = text.slice(0, named.from);
  const after = text.slice(caret);
  return files.map((file): Completion => {
    // Quote names with spaces.
    const whole = `${before}${file.includes(' ') ? `'${file}'` : file} `;
    return { key: file, head: file, usage: '', help: '', text: whole + after.replace(/^ /, ''), caret: whole.length, ready: false };
  });
}

/** Return the mentions in a text, each with its possible names: with and without trailing punctuation. */
export function mentionsIn(text: string): string[][] {
  const named = [...text.matchAll(/(?:^|\s)@(?:'([^'\n]+)'|(\S+))/g)].map(([, quoted, bare]) =>
    quoted !== undefined ? [quoted] : [...new Set([bare!, bare!.replace(/[.,;:!?)]+$/, '')])].filter(Boolean),
  );
  const seen = new Set<string>();
  return named.filter((one) => one.length > 0 && !seen.has(one.at(-1)!) && seen.add(one.at(-1)!)).slice(0, MAX_MENTIONS);
}

export async function findFiles(client: Client, owner: FileOwner | null, typed: string, { limit = 20, signal }: { limit?: number; signal?: AbortSignal } = {}): Promise<readonly string[]> {
  if (owner === null) return [];
  return (await client.call('GET /api/files', { query: { ...owner, q: typed, limit }, signal })).files;
}

/** Return the first of the possible names that is a file, or null. */
export async function resolveMention(client: Client, owner: FileOwner | null, candidates: readonly string[]): Promise<string | null> {
  for (const name of candidates) {
    // Prefix matches come first, and among them the exact name and those that differ in case.
    if ((await findFiles(client, owner, name, { limit: 5 })).includes(name)) return name;
  }
  return null;
}

export function asWorkspaceFile(name: string): FileUIPart {
  return { type: 'file', mediaType: 'application/octet-stream', filename: name.split('/').at(-1)!, url: `workspace:${name}` };
}
