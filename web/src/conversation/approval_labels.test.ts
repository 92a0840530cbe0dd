import { expect, test } from 'vitest';
import { answerLine, targetLabels, approvalReason } from './approval_labels';

test('the rule that required approval is named with its scope', () => {
  const rule = { permission: 'bash', pattern: 'git *', action: 'ask', source: 'project' };
  expect(approvalReason({ id: 'a', descriptor: { rule, scope: 'project' } })).toBe('Required by the rule “bash git *: ask” of this project.');
  expect(approvalReason({ id: 'a', descriptor: { rule: null } })).toBe('Needs your approval');
  expect(approvalReason({ id: 'a' })).toBe('Needs your approval');
  expect(approvalReason({ id: 'a', descriptor: { rule: null, reason: 'no rule covers it' } })).toBe('Needs your approval');
  const reason = '`--output=x` makes git write a file';
  expect(approvalReason({ id: 'a', descriptor: { rule: null, reason } })).toBe(`Needs your approval: ${reason}.`);
  expect(approvalReason({ id: 'a', descriptor: { rule: { ...rule, action: 'deny' }, reason: 'it may be meant' } })).toBe('Needs your approval: it may be meant.');
});

test('a path shows whether it is in the workspace', () => {
  expect(targetLabels({ permission: 'write', kind: 'path', value: '/w/a/b', inside: true }, '/w')).toEqual({ what: 'write · path', value: 'a/b', where: 'in the workspace' });
  expect(targetLabels({ permission: 'write', kind: 'path', value: '/w', inside: true }, '/w')).toEqual({ what: 'write · path', value: '/w', where: 'in the workspace' });
  expect(targetLabels({ permission: 'read', kind: 'path', value: '/w2/a' }, '/w')).toEqual({ what: 'read · path', value: '/w2/a', where: 'outside the workspace' });
  expect(targetLabels({ permission: 'task', kind: 'plain', value: '' }, null)).toEqual({ what: 'task', value: '', where: '' });
});

test('an answered call says who answered it, through which front, when and why', () => {
  const at = new Date(2026, 5, 1, 14, 3).getTime();
  const line = (approval: object) => answerLine({ approval: { id: 'a', ...approval } });
  const note = { answered_by: 'ann', via: 'http', answered_at: at };
  expect(line({ approved: true, ...note })).toBe('Allowed by ann via web · 14:03');
  expect(line({ approved: false, reason: 'not now', ...note })).toBe('Denied by ann via web · 14:03 · not now');
  expect(line({ approved: true, answered_by: 'rule', via: 'rule', answered_at: at })).toBe('Allowed by a rule · 14:03');
  expect(line({ approved: false, via: 'abort', answered_at: at })).toBe('Denied · 14:03');
  expect(answerLine({ resultProviderMetadata: { clew: { ...note, via: 'cli' } } })).toBe('Answered by ann via terminal · 14:03');
});

test('a call without a note of its answer says only what was decided, and nothing before it was answered', () => {
  expect(answerLine({})).toBe(null);
  expect(answerLine({ approval: { id: 'a' } })).toBe(null);
  expect(answerLine({ approval: { id: 'a', approved: true } })).toBe('Allowed.');
  expect(answerLine({ approval: { id: 'a', approved: false, reason: 'not now' } })).toBe('Denied: not now');
});
