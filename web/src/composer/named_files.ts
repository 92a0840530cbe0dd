/** Files that a text names by an @: found while it is typed, and sent along as they are in the workspace. */

import type { FileUIPart } from 'ai';
import type { Client } from '../api/client';
import type { Completion } from './commands';

/** Whose files: those of a session, or of the folder that a session would work in. */
export type Whose = { session: string } | { workspace: string };

const MOST = 10;

/** The word behind an @ that the caret stands at the end of; null where there is none. */
export function nameAt(text: string, caret: number): string | null {
  return /(?:^|\s)@(\S*)$/.exec(text.slice(0, caret))?.[1] ?? null;
}

/** What the text becomes with each of these files. */
export function fileCompletions(text: string, caret: number, files: readonly string[]): Completion[] {
  const typed = nameAt(text, caret);
  if (typed === null) return [];
  const before = text.slice(0, caret - typed.length);
  const after = text.slice(caret);
  return files.map((file): Completion => {
    const whole = `${before}${file} `;
    return { key: file, head: file, usage: '', help: '', text: whole + after.replace(/^ /, ''), caret: whole.length, ready: false };
  });
}

/** The names behind an @ in a text, without the sign that ends a sentence. */
export function namesIn(text: string): string[] {
  const named = [...text.matchAll(/(?:^|\s)@(\S+)/g)].map(([, name]) => name!);
  return [...new Set(named.flatMap((name) => [name, name.replace(/[.,;:!?)]+$/, '')]))].filter(Boolean).slice(0, MOST * 2);
}

export async function findFiles(client: Client, whose: Whose | null, typed: string, signal?: AbortSignal): Promise<readonly string[]> {
  if (whose === null) return [];
  return (await client.call('GET /api/files', { query: { ...whose, q: typed, limit: 20 }, signal })).files;
}

/** Those of the names that are files, as parts of a message; a name that is none stays a word. */
export async function namedParts(client: Client, whose: Whose | null, text: string): Promise<FileUIPart[]> {
  const found = await Promise.all(
    namesIn(text).map(async (name) => {
      const files = await findFiles(client, whose, name).catch((): readonly string[] => []);
      return files.includes(name) ? name : null;
    }),
  );
  return found
    .filter((name) => name !== null)
    .slice(0, MOST)
    .map((name) => ({ type: 'file', mediaType: 'application/octet-stream', filename: name.split('/').at(-1)!, url: `workspace:${name}` }));
}
