/** Reads tool calls: name, state, and a one-line summary of the input. */

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

/** A rule that an "always allow" answer may store. */
export interface Offer {
  pattern: string;
  words: string;
}

export interface Approval {
  id: string;
  approved?: boolean;
  reason?: string;
  answered_by?: string;
  via?: string;
  answered_at?: number;
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

/** Return the state of a call. `live`: its turn is running; `waiting`: it is waiting for the user; `over`: its turn was stopped or failed. */
export function toolState(part: ToolPart, live: boolean, waiting: boolean, over = false): ToolState {
  switch (part.state) {
    case 'input-streaming':
      return live ? 'preparing' : 'unfinished';
    case 'input-available':
      return waiting ? 'waiting' : live ? 'running' : 'unfinished';
    case 'approval-requested':
      return 'waiting';
    case 'approval-responded':
      return part.approval?.approved === false ? 'denied' : live ? 'running' : over ? 'unfinished' : 'allowed';
    case 'output-available':
      return part.preliminary ? (live ? 'running' : 'unfinished') : 'done';
    case 'output-error':
      // Denied by a rule or the mode, without asking.
      return part.errorText?.startsWith('denied: ') ? 'denied' : 'failed';
    case 'output-denied':
      return 'denied';
    default:
      return 'unfinished';
  }
}

export const STATE_LABELS: Record<ToolState, string> = {
  preparing: 'preparing',
  running: 'running',
  waiting: 'waiting for you',
  done: 'done',
  failed: 'failed',
  denied: 'denied',
  allowed: 'allowed',
  unfinished: 'not finished',
};

/** The most informative field per tool, and common ones for other tools. */
const MAIN_FIELD: Record<string, string> = { bash: 'command', task: 'prompt', question: 'question', web_fetch: 'url', grep: 'pattern', glob: 'pattern', recall: 'query', skill: 'name' };
const COMMON_FIELDS = ['command', 'path', 'file_path', 'url', 'pattern', 'query', 'prompt', 'question', 'name'];
const MAX_SUMMARY_CHARS = 160;

/** Summarize the input in one line. */
export function summarizeInput(name: string, input: unknown): string {
  if (typeof input === 'string') return oneLine(input);
  if (!input || typeof input !== 'object' || Array.isArray(input)) return input === undefined || input === null ? '' : oneLine(JSON.stringify(input));
  const fields = input as Record<string, unknown>;
  if (name === 'todo' && Array.isArray(fields.items)) return `${fields.items.length} ${fields.items.length === 1 ? 'item' : 'items'}`;
  for (const field of [MAIN_FIELD[name], ...COMMON_FIELDS]) {
    const value = field === undefined ? undefined : fields[field];
    if (typeof value === 'string' && value.trim() !== '') return oneLine(value);
  }
  const entries = Object.entries(fields);
  return entries.length === 0 ? '' : oneLine(JSON.stringify(input));
}

/** Limit of the diff computation, which blocks rendering. */
const MAX_DIFF_STEPS = 400;
const edits = new WeakMap<object, Edit>();

export interface Edit {
  lines: ShownLine[];
  added: number;
  removed: number;
  /** A remark, such as that the file is new or that the edit will fail. */
  note?: string;
}

/** Return the change of a call as the engine computed it; for calls of older versions, computed from the input; else null. */
export function editOf(name: string, part: Pick<ToolPart, 'input' | 'approval' | 'resultProviderMetadata'>): Edit | null {
  const change = [part.resultProviderMetadata?.clew?.change, part.approval?.descriptor?.change].find(isChange);
  const { input } = part;
  const key = change ?? (name === 'edit' && input && typeof input === 'object' ? input : null);
  if (key === null) return null;
  const known = edits.get(key);
  if (known) return known;
  const edit = change ? { lines: changeLines(change.diff), added: change.added, removed: change.removed, ...(typeof change.note === 'string' ? { note: change.note } : {}) } : fromInput(input);
  if (edit) edits.set(key, edit);
  return edit;
}

function fromInput(input: unknown): Edit | null {
  const { old, new: put } = input as { old?: unknown; new?: unknown };
  if (typeof old !== 'string' || typeof put !== 'string') return null;
  const lines = lineDiff(old, put, MAX_DIFF_STEPS);
  return { lines: withContext(lines), added: lines.filter((line) => line.kind === 'added').length, removed: lines.filter((line) => line.kind === 'removed').length };
}

function isChange(value: unknown): value is { diff: string; added: number; removed: number; note?: unknown } {
  const change = value as { diff?: unknown; added?: unknown; removed?: unknown } | null | undefined;
  return typeof change?.diff === 'string' && typeof change.added === 'number' && typeof change.removed === 'number';
}

/** Return the duration if it was recorded; fast calls have none. */
export function tookMs(part: ToolPart): number | null {
  const durationMs = part.resultProviderMetadata?.clew?.took_ms;
  return typeof durationMs === 'number' && !part.preliminary ? durationMs : null;
}

function oneLine(text: string): string {
  const line = text.trim().replace(/\s+/g, ' ');
  return line.length > MAX_SUMMARY_CHARS ? `${line.slice(0, MAX_SUMMARY_CHARS)}…` : line;
}

/** Format a value: text unchanged, anything else as indented JSON. */
export function asText(value: unknown): string {
  if (typeof value === 'string') return value;
  if (value === undefined) return '';
  return JSON.stringify(value, null, 2);
}

/** Return the exit code of a command, negative for a signal; null for other tools and for the text outputs of older versions. */
export function exitCode(part: ToolPart): number | null {
  const output = toolName(part) === 'bash' && !part.preliminary && part.state === 'output-available' ? part.output : null;
  const code = output && typeof output === 'object' ? (output as { exit_code?: unknown }).exit_code : null;
  return typeof code === 'number' && typeof (output as { text?: unknown }).text === 'string' ? code : null;
}

/** Return the output as text. */
export function outputText(part: ToolPart): string {
  return asText(exitCode(part) === null ? part.output : (part.output as { text: string }).text);
}

/** Return the end of the output of a running call. */
export function liveOutput(part: ToolPart): string | null {
  if (!part.preliminary || part.state !== 'output-available' || subagentOf(part) !== null) return null;
  const output = part.output as { text?: unknown } | string | null | undefined;
  const text = typeof output === 'string' ? output : typeof output?.text === 'string' ? output.text : null;
  return text?.trimEnd() || null;
}

/** Return the session of a subagent; stopped and failed calls have it in the metadata. */
export function subagentOf(part: ToolPart): string | null {
  const output = (part.state === 'output-error' ? part.resultProviderMetadata?.clew : part.output) as { session_id?: unknown } | null | undefined;
  const named = output && typeof output === 'object' ? output.session_id : undefined;
  return typeof named === 'string' && /^[\w-]+$/.test(named) ? named : null;
}

export interface SubagentProgress {
  steps?: number;
  tokens?: number;
  cost?: number;
  /** The current or last tool call. */
  activity?: string;
  /** The last part of its text. */
  tail?: string;
}

/** Return the progress of a running subagent, or the usage of a finished one. */
export function subagentProgress(part: ToolPart): SubagentProgress {
  const running = part.preliminary === true;
  const report = ((running ? part.output : part.resultProviderMetadata?.clew) ?? {}) as Record<string, unknown>;
  const number = (key: string) => (typeof report[key] === 'number' ? report[key] : undefined);
  const text = (key: string) => (typeof report[key] === 'string' && report[key] !== '' ? report[key] : undefined);
  return {
    steps: number('steps'),
    tokens: number('tokens'),
    cost: number('cost_usd'),
    ...(running ? { activity: [text('tool'), text('doing')].filter(Boolean).join(' ') || undefined, tail: text('text') } : {}),
  };
}
