import { expect, test } from 'vitest';
import { COMMANDS, completions, ordinal, readLine } from './commands';

test('a text without a slash is a text', () => {
  expect(readLine('hello / there')).toEqual({ kind: 'text', text: 'hello / there' });
  expect(readLine('')).toEqual({ kind: 'text', text: '' });
});

test('a command is parsed with its arguments, also over several lines', () => {
  expect(readLine('/compact the door\nand the key ')).toEqual({ kind: 'command', name: 'compact', rest: 'the door\nand the key' });
  expect(readLine('/PRUNE')).toEqual({ kind: 'command', name: 'prune', rest: '' });
  expect(readLine('/title\nA title')).toEqual({ kind: 'command', name: 'title', rest: 'A title' });
});

test('an unknown command is reported with its name', () => {
  expect(readLine('/home/me is a path')).toEqual({ kind: 'unknown', name: 'home/me' });
  expect(readLine('/')).toEqual({ kind: 'unknown', name: '' });
  expect(readLine('/rewinds')).toEqual({ kind: 'unknown', name: 'rewinds' });
});

test('two slashes send a text that begins with one', () => {
  expect(readLine('//etc/hosts')).toEqual({ kind: 'text', text: '/etc/hosts' });
});

test('a prefix is completed while the name is typed, not after', () => {
  expect(completions('/').length).toBe(COMMANDS.length);
  expect(completions('/re').map((one) => one.key)).toEqual(['rewind', 'reflog']);
  expect(completions('/Con').map((one) => one.key)).toEqual(['continue', 'context']);
  expect(completions('/title ')).toEqual([]);
  expect(completions('say /re')).toEqual([]);
  expect(completions('/zzz')).toEqual([]);
});

test('completing a command with arguments appends a space', () => {
  expect([completions('/title')[0]?.text, completions('/tree')[0]?.text]).toEqual(['/title ', '/tree']);
  expect([completions('/title')[0]?.ready, completions('/tree')[0]?.ready, completions('/compact')[0]?.ready]).toEqual([false, true, true]);
});

test('saved prompts are listed after the commands, unless a command has the name', () => {
  const saved = [
    { name: 'review', text: 'Look at\nthe diff.' },
    { name: 'reflog', text: 'never shown' },
  ];
  expect(completions('/re', saved).map((one) => [one.key, one.text, one.help])).toEqual([
    ['rewind', '/rewind ', 'Rewind to before your last message, or your Nth last one'],
    ['reflog', '/reflog', 'Show every turn, rewind and jump, newest first'],
    ['prompt review', 'Look at\nthe diff.', 'Look at the diff.'],
  ]);
});

test('a number counts from one', () => {
  expect(['1', '12', '0', '-1', 'x', '', '1.5'].map(ordinal)).toEqual([1, 12, null, null, null, null, null]);
});
