/** Files that a text names by an @: found while it is typed, shown before it is sent, and sent along as they are in the workspace. */

import type { FileUIPart } from 'ai';
import type { Client } from '../api/client';
import type { Completion } from './commands';

/** Whose files: those of a session, or of the folder that a session would work in. */
export type Whose = { session: string } | { workspace: string };

const MOST = 10;

/** The name behind an @ that the caret stands at the end of, and where it begins; null where there is none. */
export function nameAt(text: string, caret: number): { typed: string; from: number } | null {
  const found = /(?:^|\s)@('[^'\n]*|\S*)$/.exec(text.slice(0, caret))?.[1];
  return found === undefined ? null : { typed: found.replace(/^'/, ''), from: caret - found.length };
}

/** What the text becomes with each of these files. */
export function fileCompletions(text: string, caret: number, files: readonly string[]): Completion[] {
  const named = nameAt(text, caret);
  if (named === null) return [];
  const before = text.slice(0, named.from);
  const after = text.slice(caret);
  return files.map((file): Completion => {
    // One name, though there are spaces in it.
    const whole = `${before}${file.includes(' ') ? `'${file}'` : file} `;
    return { key: file, head: file, usage: '', help: '', text: whole + after.replace(/^ /, ''), caret: whole.length, ready: false };
  });
}

/** The names behind an @ in a text: each as it may be meant, with and without the sign that ends a sentence. */
export function namesIn(text: string): string[][] {
  const named = [...text.matchAll(/(?:^|\s)@(?:'([^'\n]+)'|(\S+))/g)].map(([, quoted, bare]) =>
    quoted !== undefined ? [quoted] : [...new Set([bare!, bare!.replace(/[.,;:!?)]+$/, '')])].filter(Boolean),
  );
  const seen = new Set<string>();
  return named.filter((one) => one.length > 0 && !seen.has(one.at(-1)!) && seen.add(one.at(-1)!)).slice(0, MOST);
}

export async function findFiles(client: Client, whose: Whose | null, typed: string, { limit = 20, signal }: { limit?: number; signal?: AbortSignal } = {}): Promise<readonly string[]> {
  if (whose === null) return [];
  return (await client.call('GET /api/files', { query: { ...whose, q: typed, limit }, signal })).files;
}

/** The first of what a name may mean that is a file; null where none is. */
export async function fileNamed(client: Client, whose: Whose | null, meanings: readonly string[]): Promise<string | null> {
  for (const name of meanings) {
    // What begins so comes first, and of that the name itself, beside what differs in capitals.
    if ((await findFiles(client, whose, name, { limit: 5 })).includes(name)) return name;
  }
  return null;
}

export function asNamedPart(name: string): FileUIPart {
  return { type: 'file', mediaType: 'application/octet-stream', filename: name.split('/').at(-1)!, url: `workspace:${name}` };
}
