import { expect, test } from 'vitest';
import { decisionText, targetLabels, approvalReason } from './approval_labels';

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

test('a decision has a text, and a call without a request has none', () => {
  expect(decisionText(undefined)).toBe(null);
  expect(decisionText({ id: 'a' })).toBe(null);
  expect(decisionText({ id: 'a', approved: true })).toBe('You allowed this.');
  expect(decisionText({ id: 'a', approved: false })).toBe('Denied.');
  expect(decisionText({ id: 'a', approved: false, reason: 'not now' })).toBe('Denied: not now');
});
