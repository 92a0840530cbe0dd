import { expect, it } from 'vitest';
import { readDiff } from './unified_diff';

it('parses added, removed and header lines', () => {
  expect(readDiff('--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n')).toEqual({
    lines: [
      { kind: 'mark', text: '--- a/x' },
      { kind: 'mark', text: '+++ b/x' },
      { kind: 'mark', text: '@@ -1,2 +1,2 @@' },
      { kind: 'same', text: 'one' },
      { kind: 'removed', text: 'two' },
      { kind: 'added', text: '2' },
      { kind: 'same', text: '' },
    ],
    added: 1,
    removed: 1,
  });
});

it('returns null without changes', () => {
  expect(readDiff('just\ntext')).toBeNull();
});
