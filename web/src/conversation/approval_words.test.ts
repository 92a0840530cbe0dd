import { expect, test } from 'vitest';
import { decided, targetWords, whoAsked } from './approval_words';

test('the rule that asked is named with its scope', () => {
  const rule = { permission: 'bash', pattern: 'git *', action: 'ask', source: 'project' };
  expect(whoAsked({ id: 'a', descriptor: { rule, scope: 'project' } })).toBe('Asked by the rule “bash git *: ask” of this project.');
  expect(whoAsked({ id: 'a', descriptor: { rule: null } })).toBe('Needs your approval');
  expect(whoAsked({ id: 'a' })).toBe('Needs your approval');
  expect(whoAsked({ id: 'a', descriptor: { rule: null, reason: 'no rule covers it' } })).toBe('Needs your approval');
  const reason = '`--output=x` makes git write a file';
  expect(whoAsked({ id: 'a', descriptor: { rule: null, reason } })).toBe(`You are asked because ${reason}.`);
  expect(whoAsked({ id: 'a', descriptor: { rule: { ...rule, action: 'deny' }, reason: 'it may be meant' } })).toBe('You are asked because it may be meant.');
});

test('a path says whether it lies in the workspace', () => {
  expect(targetWords({ permission: 'write', kind: 'path', value: '/w/a/b', inside: true }, '/w')).toEqual({ what: 'write · path', value: 'a/b', where: 'in the workspace' });
  expect(targetWords({ permission: 'write', kind: 'path', value: '/w', inside: true }, '/w')).toEqual({ what: 'write · path', value: '/w', where: 'in the workspace' });
  expect(targetWords({ permission: 'read', kind: 'path', value: '/w2/a' }, '/w')).toEqual({ what: 'read · path', value: '/w2/a', where: 'outside the workspace' });
  expect(targetWords({ permission: 'task', kind: 'plain', value: '' }, null)).toEqual({ what: 'task', value: '', where: '' });
});

test('what was decided is told, and nothing where nobody was asked', () => {
  expect(decided(undefined)).toBe(null);
  expect(decided({ id: 'a' })).toBe(null);
  expect(decided({ id: 'a', approved: true })).toBe('You allowed this.');
  expect(decided({ id: 'a', approved: false })).toBe('Denied.');
  expect(decided({ id: 'a', approved: false, reason: 'not now' })).toBe('Denied: not now');
});
