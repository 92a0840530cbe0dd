/** Imports sessions from files, one after another. */

import type { Answer, Client } from '../api/client';
import { errorText } from '../api/problem';

export const PROGRAMS = [
  ['claude-code', 'Claude Code', 'Files from ~/.claude/projects (*.jsonl); choose subagent files (agent-*.jsonl) together with their session'],
  ['codex', 'Codex', 'Files from ~/.codex/sessions (rollout-*.jsonl)'],
  ['pi', 'pi', 'Files from ~/.pi/agent/sessions (*.jsonl)'],
  ['opencode', 'opencode', 'Output of `opencode export`'],
  ['clew', 'clew', 'JSON or JSONL exports'],
] as const;
export type Source = (typeof PROGRAMS)[number][0];
export type ImportReport = Answer<'POST /api/import-from'>;

/** The result of one file: a report, or the error. */
export interface ImportResult {
  name: string;
  report: ImportReport | null;
  problem: string | null;
}

export const OUTCOMES: Record<ImportReport['outcome'], string> = {
  new: 'imported',
  grown: 'updated',
  same: 'already imported',
  apart: 'already imported, not updated',
};

export const FATE_LABELS: Record<ImportReport['remarks'][number]['fate'], string> = {
  kept: 'stored, not shown in the conversation',
  changed: 'changed on import',
  lost: 'not imported',
};

/** Separates the files of one session. */
const FILE_SEPARATOR = '\n\f\n';

/** Group the files by session: subagent files belong to the session that their lines name. */
export async function groupFiles(source: Source, files: readonly File[]): Promise<{ name: string; body: Blob }[]> {
  const isAgent = (file: File) => source === 'claude-code' && file.name.startsWith('agent-') && files.length > 1;
  const agents = await Promise.all(files.filter(isAgent).map(async (file) => ({ file, head: await file.slice(0, 65_536).text() })));
  const used = new Set<File>();
  const sessions = files
    .filter((file) => !isAgent(file))
    .map((file) => {
      const id = file.name.replace(/\.jsonl$/, '');
      const own = agents.filter(({ head }) => head.includes(`"sessionId":"${id}"`)).map(({ file: agent }) => agent);
      for (const agent of own) used.add(agent);
      return { name: file.name, body: new Blob([file, ...own.flatMap((agent) => [FILE_SEPARATOR, agent])]) };
    });
  // A subagent file without its session is sent alone, so that the server reports the error.
  const left = agents.filter(({ file }) => !used.has(file)).map(({ file }) => ({ name: file.name, body: new Blob([file]) }));
  return [...sessions, ...left];
}

export async function importFile(client: Client, source: Source, name: string, body: Blob): Promise<ImportResult> {
  const path = source === 'clew' ? '/api/import' : `/api/import-from?program=${source}`;
  try {
    const answer = await (await client.fetch(path, { method: 'POST', body })).json();
    if (source !== 'clew') return { name, report: answer as ImportReport, problem: null };
    const session = answer as Answer<'POST /api/import'>;
    return { name, report: { session_id: session.id, title: session.title, outcome: 'new', turns: 0, subagents: 0, why: null, remarks: [] }, problem: null };
  } catch (refused) {
    return { name, report: null, problem: errorText(refused) };
  }
}
