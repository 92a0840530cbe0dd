/** Why a call waits, and what it would touch, in plain words. */

import type { Approval, Target } from './tool_part';

const SCOPES: Record<string, string> = { manifest: 'the agent', session: 'this session', project: 'this project', mode: 'the mode' };
const KINDS: Record<string, string> = { path: 'path', command: 'command', host: 'host', plain: '' };

export function whoAsked(approval: Approval): string {
  const rule = approval.descriptor?.rule;
  const reason = approval.descriptor?.reason;
  // A rule that asks says so itself; in every other case the engine knows more than which rule it was.
  if (rule?.action !== 'ask' && reason && reason !== 'no rule covers it') return `You are asked because ${reason}.`;
  if (!rule) return 'Needs your approval';
  const scope = SCOPES[approval.descriptor?.scope ?? rule.source ?? ''];
  return `Asked by the rule “${rule.permission} ${rule.pattern}: ${rule.action}”${scope ? ` of ${scope}` : ''}.`;
}

/** Return the title of a request. */
export function requestName(tool: string): string {
  return tool === 'bash' ? 'Approve this command?' : `Approve this ${tool} call?`;
}

/** What is touched: how it is called, the thing itself (from the workspace, where it lies in it), and a word about where it is. */
export function targetWords(target: Target, root: string | null): { what: string; value: string; where: string } {
  const kind = KINDS[target.kind] ?? '';
  const below = target.kind === 'path' && target.inside && root !== null && target.value.startsWith(`${root}/`);
  return {
    what: kind && kind !== target.permission ? `${target.permission} · ${kind}` : target.permission,
    value: below ? target.value.slice(root.length + 1) : target.value,
    where: target.kind === 'path' ? (target.inside ? 'in the workspace' : 'outside the workspace') : '',
  };
}

/** How it was decided, for a call that no longer waits; null when nobody was asked. */
export function decided(approval: Approval | undefined): string | null {
  if (!approval || approval.approved === undefined) return null;
  if (approval.approved) return 'You allowed this.';
  return approval.reason ? `Denied: ${approval.reason}` : 'Denied.';
}
