import { expect, test } from 'vitest';
import { fileName } from './export';

test('a title becomes a name that every file system accepts', () => {
  expect(fileName('Sample: ways / that part?', 'md')).toBe('Sample ways that part.md');
  expect(fileName('../../etc/passwd', 'json')).toBe('etc passwd.json');
  expect(fileName('שלום עולם', 'html')).toBe('שלום עולם.html');
  expect(fileName('a\u202Egpj.exe', 'md')).toBe('a gpj.exe.md');
});

test('a session without a usable title has a name too', () => {
  expect([fileName(null, 'md'), fileName('???', 'json'), fileName('...', 'html')]).toEqual(['session.md', 'session.json', 'session.html']);
});
