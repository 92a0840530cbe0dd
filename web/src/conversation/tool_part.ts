/** A tool call as the page reads it: its name, its state in words, one line of what it was given. */

import type { Part } from '../api/types';
import { changeLines } from '../code/unified_diff';
import type { ShownLine } from '../ui/diff_lines';
import { lineDiff, withContext } from '../ui/line_diff';

export interface Target {
  permission: string;
  kind: 'path' | 'command' | 'host' | 'plain';
  value: string;
  inside?: boolean;
}

export interface Rule {
  permission: string;
  pattern: string;
  action: string;
  source?: string;
  pinned?: boolean;
}

/** What an answer may allow from now on, in words. */
export interface Offer {
  pattern: string;
  words: string;
}

export interface Approval {
  id: string;
  approved?: boolean;
  reason?: string;
  descriptor?: { targets?: Target[]; rule?: Rule | null; scope?: string | null; reason?: string; since?: number; offers?: Offer[]; change?: unknown };
}

export interface ToolPart {
  type: string;
  toolName?: string;
  toolCallId: string;
  state: string;
  input?: unknown;
  output?: unknown;
  errorText?: string;
  preliminary?: boolean;
  approval?: Approval;
  resultProviderMetadata?: { clew?: Record<string, unknown> };
}

export function asTool(part: Part): ToolPart | null {
  return part.type.startsWith('tool-') || part.type === 'dynamic-tool' ? (part as unknown as ToolPart) : null;
}

export function toolName(part: ToolPart): string {
  return part.toolName ?? part.type.replace(/^tool-/, '');
}

export type ToolState = 'preparing' | 'running' | 'waiting' | 'done' | 'failed' | 'denied' | 'allowed' | 'unfinished';

/** `live` says that the turn it belongs to is being run; `asked` that a person is awaited for it; `over` that the turn was stopped or failed. */
export function toolState(part: ToolPart, live: boolean, asked: boolean, over = false): ToolState {
  switch (part.state) {
    case 'input-streaming':
      return live ? 'preparing' : 'unfinished';
    case 'input-available':
      return asked ? 'waiting' : live ? 'running' : 'unfinished';
    case 'approval-requested':
      return 'waiting';
    case 'approval-responded':
      return part.approval?.approved === false ? 'denied' : live ? 'running' : over ? 'unfinished' : 'allowed';
    case 'output-available':
      return part.preliminary ? (live ? 'running' : 'unfinished') : 'done';
    case 'output-error':
      // By a rule or the mode, without anybody being asked.
      return part.errorText?.startsWith('denied: ') ? 'denied' : 'failed';
    case 'output-denied':
      return 'denied';
    default:
      return 'unfinished';
  }
}

export const STATE_WORDS: Record<ToolState, string> = {
  preparing: 'preparing',
  running: 'running',
  waiting: 'waiting for you',
  done: 'done',
  failed: 'failed',
  denied: 'denied',
  allowed: 'allowed',
  unfinished: 'not finished',
};

/** The field that says most, by tool; then any of the usual ones. */
const TELLING: Record<string, string> = { bash: 'command', task: 'prompt', question: 'question', web_fetch: 'url', grep: 'pattern', glob: 'pattern', recall: 'query', skill: 'name' };
const USUAL = ['command', 'path', 'file_path', 'url', 'pattern', 'query', 'prompt', 'question', 'name'];
const GIST_CHARS = 160;

/** One line of the input. */
export function gist(name: string, input: unknown): string {
  if (typeof input === 'string') return oneLine(input);
  if (!input || typeof input !== 'object' || Array.isArray(input)) return input === undefined || input === null ? '' : oneLine(JSON.stringify(input));
  const fields = input as Record<string, unknown>;
  if (name === 'todo' && Array.isArray(fields.items)) return `${fields.items.length} ${fields.items.length === 1 ? 'item' : 'items'}`;
  for (const field of [TELLING[name], ...USUAL]) {
    const value = field === undefined ? undefined : fields[field];
    if (typeof value === 'string' && value.trim() !== '') return oneLine(value);
  }
  const entries = Object.entries(fields);
  return entries.length === 0 ? '' : oneLine(JSON.stringify(input));
}

/** Steps of a difference that is worth finding while people read on. */
const DIFF_STEPS = 400;
const edits = new WeakMap<object, Edit>();

export interface Edit {
  lines: ShownLine[];
  added: number;
  removed: number;
  /** What else there is to say of it: a new file, that it will fail. */
  note?: string;
}

/** What a call changes, line by line, as the engine has it; of an edit of old what its own words say; else null. */
export function editOf(name: string, part: Pick<ToolPart, 'input' | 'approval' | 'resultProviderMetadata'>): Edit | null {
  const told = [part.resultProviderMetadata?.clew?.change, part.approval?.descriptor?.change].find(isChange);
  const { input } = part;
  const key = told ?? (name === 'edit' && input && typeof input === 'object' ? input : null);
  if (key === null) return null;
  const known = edits.get(key);
  if (known) return known;
  const edit = told ? { lines: changeLines(told.diff), added: told.added, removed: told.removed, ...(typeof told.note === 'string' ? { note: told.note } : {}) } : fromWords(input);
  if (edit) edits.set(key, edit);
  return edit;
}

function fromWords(input: unknown): Edit | null {
  const { old, new: put } = input as { old?: unknown; new?: unknown };
  if (typeof old !== 'string' || typeof put !== 'string') return null;
  const lines = lineDiff(old, put, DIFF_STEPS);
  return { lines: withContext(lines), added: lines.filter((line) => line.kind === 'added').length, removed: lines.filter((line) => line.kind === 'removed').length };
}

function isChange(value: unknown): value is { diff: string; added: number; removed: number; note?: unknown } {
  const change = value as { diff?: unknown; added?: unknown; removed?: unknown } | null | undefined;
  return typeof change?.diff === 'string' && typeof change.added === 'number' && typeof change.removed === 'number';
}

/** How long it took, where that was kept: what was quick was not. */
export function tookMs(part: ToolPart): number | null {
  const took = part.resultProviderMetadata?.clew?.took_ms;
  return typeof took === 'number' && !part.preliminary ? took : null;
}

function oneLine(text: string): string {
  const line = text.trim().replace(/\s+/g, ' ');
  return line.length > GIST_CHARS ? `${line.slice(0, GIST_CHARS)}…` : line;
}

/** Text as it is, anything else as JSON that can be read. */
export function asText(value: unknown): string {
  if (typeof value === 'string') return value;
  if (value === undefined) return '';
  return JSON.stringify(value, null, 2);
}

/** How a command ended, a signal as a negative number; null for other tools, and for outputs of old, which are text. */
export function exitCode(part: ToolPart): number | null {
  const output = toolName(part) === 'bash' && !part.preliminary && part.state === 'output-available' ? part.output : null;
  const code = output && typeof output === 'object' ? (output as { exit_code?: unknown }).exit_code : null;
  return typeof code === 'number' && typeof (output as { text?: unknown }).text === 'string' ? code : null;
}

/** What a call gave back, as it is read: of a command what it wrote. */
export function outputText(part: ToolPart): string {
  return asText(exitCode(part) === null ? part.output : (part.output as { text: string }).text);
}

/** What a call has given so far, while it runs: the end of it, as text. */
export function soFar(part: ToolPart): string | null {
  if (!part.preliminary || part.state !== 'output-available' || subagentOf(part) !== null) return null;
  const output = part.output as { text?: unknown } | string | null | undefined;
  const text = typeof output === 'string' ? output : typeof output?.text === 'string' ? output.text : null;
  return text?.trimEnd() || null;
}

/** The session a subagent worked in; of a call that was stopped, or failed, what is kept of it says so. */
export function subagentOf(part: ToolPart): string | null {
  const output = (part.state === 'output-error' ? part.resultProviderMetadata?.clew : part.output) as { session_id?: unknown } | null | undefined;
  const named = output && typeof output === 'object' ? output.session_id : undefined;
  return typeof named === 'string' && /^[\w-]+$/.test(named) ? named : null;
}

export interface SubagentProgress {
  steps?: number;
  tokens?: number;
  cost?: number;
  /** What it does, or did last: the tool, and what with. */
  doing?: string;
  /** The end of what it says. */
  words?: string;
}

/** How far a subagent is, or what it took. */
export function subagentProgress(part: ToolPart): SubagentProgress {
  const running = part.preliminary === true;
  const told = ((running ? part.output : part.resultProviderMetadata?.clew) ?? {}) as Record<string, unknown>;
  const number = (key: string) => (typeof told[key] === 'number' ? told[key] : undefined);
  const text = (key: string) => (typeof told[key] === 'string' && told[key] !== '' ? told[key] : undefined);
  return {
    steps: number('steps'),
    tokens: number('tokens'),
    cost: number('cost_usd'),
    ...(running ? { doing: [text('tool'), text('doing')].filter(Boolean).join(' ') || undefined, words: text('text') } : {}),
  };
}
