/** Sessions from files of this machine, one after another, and what became of each. */

import type { Answer, Client } from '../api/client';
import { inWords } from '../api/problem';

export const PROGRAMS = [
  ['claude-code', 'Claude Code', 'Files of ~/.claude/projects, *.jsonl; those of subagents (agent-*.jsonl) together with their session'],
  ['codex', 'Codex', 'Files of ~/.codex/sessions, rollout-*.jsonl'],
  ['pi', 'pi', 'Files of ~/.pi/agent/sessions, *.jsonl'],
  ['opencode', 'opencode', 'What `opencode export` writes'],
  ['clew', 'clew', 'Exports as JSON or JSONL'],
] as const;
export type Source = (typeof PROGRAMS)[number][0];
export type Arrived = Answer<'POST /api/import-from'>;

/** What came of one file: the session, or why there is none. */
export interface Arrival {
  name: string;
  came: Arrived | null;
  problem: string | null;
}

export const OUTCOMES: Record<Arrived['outcome'], string> = {
  new: 'new',
  grown: 'has what was new',
  same: 'was here already',
  apart: 'was here, and was not brought up to date',
};

export const FATES: Record<Arrived['remarks'][number]['fate'], string> = {
  kept: 'kept beside the conversation',
  changed: 'came otherwise than it was',
  lost: 'only in the file',
};

/** A line between two files of one session. */
const FILE_END = '\n\f\n';

/** The files as sessions: those of subagents go with the session that their lines name. */
export async function bundles(source: Source, files: readonly File[]): Promise<{ name: string; body: Blob }[]> {
  const beside = (file: File) => source === 'claude-code' && file.name.startsWith('agent-') && files.length > 1;
  const agents = await Promise.all(files.filter(beside).map(async (file) => ({ file, says: await file.slice(0, 65_536).text() })));
  const taken = new Set<File>();
  const sessions = files
    .filter((file) => !beside(file))
    .map((file) => {
      const id = file.name.replace(/\.jsonl$/, '');
      const own = agents.filter(({ says }) => says.includes(`"sessionId":"${id}"`)).map(({ file: agent }) => agent);
      for (const agent of own) taken.add(agent);
      return { name: file.name, body: new Blob([file, ...own.flatMap((agent) => [FILE_END, agent])]) };
    });
  // One whose session was not chosen goes alone, so that the answer says why it cannot come.
  const left = agents.filter(({ file }) => !taken.has(file)).map(({ file }) => ({ name: file.name, body: new Blob([file]) }));
  return [...sessions, ...left];
}

export async function bring(client: Client, source: Source, name: string, body: Blob): Promise<Arrival> {
  const path = source === 'clew' ? '/api/import' : `/api/import-from?program=${source}`;
  try {
    const answer = await (await client.fetch(path, { method: 'POST', body })).json();
    if (source !== 'clew') return { name, came: answer as Arrived, problem: null };
    const session = answer as Answer<'POST /api/import'>;
    return { name, came: { session_id: session.id, title: session.title, outcome: 'new', turns: 0, subagents: 0, why: null, remarks: [] }, problem: null };
  } catch (refused) {
    return { name, came: null, problem: inWords(refused) };
  }
}
