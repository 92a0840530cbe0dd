import { expect, test } from 'vitest';
import { COMMANDS, completed, completions, ordinal, readLine } from './commands';

test('a text without a slash is a text', () => {
  expect(readLine('hello / there')).toEqual({ kind: 'text', text: 'hello / there' });
  expect(readLine('')).toEqual({ kind: 'text', text: '' });
});

test('a command is read with what stands behind it, over several lines too', () => {
  expect(readLine('/compact the door\nand the key ')).toEqual({ kind: 'command', name: 'compact', rest: 'the door\nand the key' });
  expect(readLine('/PRUNE')).toEqual({ kind: 'command', name: 'prune', rest: '' });
  expect(readLine('/title\nA title')).toEqual({ kind: 'command', name: 'title', rest: 'A title' });
});

test('an unknown command is said to be one, by the name it was given', () => {
  expect(readLine('/home/me is a path')).toEqual({ kind: 'unknown', name: 'home/me' });
  expect(readLine('/')).toEqual({ kind: 'unknown', name: '' });
  expect(readLine('/rewinds')).toEqual({ kind: 'unknown', name: 'rewinds' });
});

test('two slashes send a text that begins with one', () => {
  expect(readLine('//etc/hosts')).toEqual({ kind: 'text', text: '/etc/hosts' });
});

test('a beginning is completed while the name is typed, and not after', () => {
  expect(completions('/').length).toBe(COMMANDS.length);
  expect(completions('/re').map((command) => command.name)).toEqual(['rewind', 'reflog']);
  expect(completions('/Con').map((command) => command.name)).toEqual(['continue', 'context']);
  expect(completions('/title ')).toEqual([]);
  expect(completions('say /re')).toEqual([]);
  expect(completions('/zzz')).toEqual([]);
});

test('a picked command that takes words leaves room for them', () => {
  const byName = (name: string) => COMMANDS.find((command) => command.name === name)!;
  expect([completed(byName('title')), completed(byName('tree'))]).toEqual(['/title ', '/tree']);
});

test('a number counts from one', () => {
  expect(['1', '12', '0', '-1', 'x', '', '1.5'].map(ordinal)).toEqual([1, 12, null, null, null, null, null]);
});
