/** Labels of approval requests: why approval is needed, and what the call affects. */

import type { Approval, Target } from './tool_part';

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

/** Return how a request was answered, or null if there was none. */
export function decisionText(approval: Approval | undefined): string | null {
  if (!approval || approval.approved === undefined) return null;
  if (approval.approved) return 'You allowed this.';
  return approval.reason ? `Denied: ${approval.reason}` : 'Denied.';
}
