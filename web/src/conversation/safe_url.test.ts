import { expect, test } from 'vitest';
import { safeUrl } from './safe_url';

test('web and mail links are allowed', () => {
  expect(safeUrl('https://example.org/a?b#c')).toBe('https://example.org/a?b#c');
  expect(safeUrl('http://example.org')).toBe('http://example.org/');
  expect(safeUrl('mailto:a@example.org')).toBe('mailto:a@example.org');
});

test('nothing else may', () => {
  const refused = ['javascript:alert(1)', ' JaVaScRiPt:alert(1)', 'data:text/html,x', 'vbscript:x', 'file:///etc/passwd', 'blob:http://x/1', '#/s/other', '/api/sessions', '//example.org', 'streamdown:incomplete-link', '', undefined];
  expect(refused.map(safeUrl)).toEqual(refused.map(() => null));
});
