/** Labels of approval requests: why approval is needed, and what the call affects. */

import { moment, timeOfDay } from '../ui/format';
import type { Approval, Target, ToolPart } from './tool_part';

const SCOPES: Record<string, string> = { manifest: 'the agent', session: 'this session', project: 'this project', mode: 'the mode' };
const KINDS: Record<string, string> = { path: 'path', command: 'command', host: 'host', plain: '' };

export function approvalReason(approval: Approval): string {
  const rule = approval.descriptor?.rule;
  const reason = approval.descriptor?.reason;
  // Unless a rule asks, the engine's reason says more than the rule.
  if (rule?.action !== 'ask' && reason && reason !== 'no rule covers it') return `Needs your approval: ${reason}.`;
  if (!rule) return 'Needs your approval';
  const scope = SCOPES[approval.descriptor?.scope ?? rule.source ?? ''];
  return `Required by the rule “${rule.permission} ${rule.pattern}: ${rule.action}”${scope ? ` of ${scope}` : ''}.`;
}

/** Return the title of a request. */
export function requestTitle(tool: string): string {
  return tool === 'bash' ? 'Approve this command?' : `Approve this ${tool} call?`;
}

/** Describe a target: its kind, its value (relative to the workspace if inside it), and whether it is in the workspace. */
export function targetLabels(target: Target, root: string | null): { what: string; value: string; where: string } {
  const kind = KINDS[target.kind] ?? '';
  const below = target.kind === 'path' && target.inside && root !== null && target.value.startsWith(`${root}/`);
  return {
    what: kind && kind !== target.permission ? `${target.permission} · ${kind}` : target.permission,
    value: below ? target.value.slice(root.length + 1) : target.value,
    where: target.kind === 'path' ? (target.inside ? 'in the workspace' : 'outside the workspace') : '',
  };
}

/** The front an answer came through, as a person calls it. */
const FRONTS: Record<string, string> = { http: 'web', chat: 'chat API', acp: 'editor', cli: 'terminal', library: 'library' };
const AUTOMATIC: Record<string, string> = { rule: 'a rule', mode: 'the mode' };

/** Return who answered a call, through which front and when, with the reason of a denial; null without an answer. */
export function answerLine({ approval, resultProviderMetadata }: Pick<ToolPart, 'approval' | 'resultProviderMetadata'>): string | null {
  const note = answerNote(approval) ?? answerNote(resultProviderMetadata?.clew);
  const verb = approval?.approved === undefined ? (approval || !note ? null : 'Answered') : approval.approved ? 'Allowed' : 'Denied';
  if (verb === null) return null;
  const reason = approval?.approved === false && approval.reason ? approval.reason : null;
  if (!note) return reason === null ? `${verb}.` : `${verb}: ${reason}`;
  const automatic = AUTOMATIC[note.via ?? ''];
  const front = FRONTS[note.via ?? ''];
  const who = automatic ?? (note.answered_by === undefined ? null : `${note.answered_by}${front ? ` via ${front}` : ''}`);
  return [who === null ? verb : `${verb} by ${who}`, timeOfDay(note.answered_at), reason].filter((one) => one !== null).join(' · ');
}

/** Return the full date and time of the answer. */
export function answeredAt({ approval, resultProviderMetadata }: Pick<ToolPart, 'approval' | 'resultProviderMetadata'>): string | undefined {
  const note = answerNote(approval) ?? answerNote(resultProviderMetadata?.clew);
  return note ? moment(note.answered_at) : undefined;
}

interface AnswerNote {
  answered_by?: string;
  via?: string;
  answered_at: number;
}

function answerNote(value: object | undefined): AnswerNote | null {
  return typeof (value as AnswerNote | undefined)?.answered_at === 'number' ? (value as AnswerNote) : null;
}
