import { expect, test } from 'vitest';
import { parseHunks } from './diff_hunks';

const DIFF = `diff --git a/app.py b/app.py
index 1..2 100644
--- a/app.py
+++ b/app.py
@@ -1,3 +1,3 @@ def main():
 first
-port = 80
+port = 8080
 last
@@ -10 +10,2 @@
--- old
+new
+more
\\ No newline at end of file
`;

const shown = (diff: string) =>
  parseHunks(diff).map(({ header, lines }) => [header, ...lines.map((line) => [line.kind, line.before ?? null, line.after ?? null, line.pieces.map(({ text, changed }) => (changed ? `[${text}]` : text)).join('')])]);

test('hunks have headers that name them, line numbers of both sides, and changed words', () => {
  expect(shown(DIFF)).toEqual([
    ['@@ -1,3 +1,3 @@', ['same', 1, 1, 'first'], ['removed', 2, null, 'port = [80]'], ['added', null, 2, 'port = [8080]'], ['same', 3, 3, 'last']],
    ['@@ -10 +10,2 @@', ['removed', 10, null, '-- old'], ['added', null, 10, 'new'], ['added', null, 11, 'more'], ['note', null, null, 'No newline at end of file']],
  ]);
});

test('lines that share only spaces and unequal runs have no changed words', () => {
  expect(shown('@@ -1,2 +1,2 @@\n-a b\n-same = 1\n+c d\n+same = 2\n')).toEqual([
    ['@@ -1,2 +1,2 @@', ['removed', 1, null, 'a b'], ['removed', 2, null, 'same = [1]'], ['added', null, 1, 'c d'], ['added', null, 2, 'same = [2]']],
  ]);
  expect(shown('@@ -1 +1,2 @@\n-one = 1\n+one = 2\n+two\n')).toEqual([['@@ -1 +1,2 @@', ['removed', 1, null, 'one = 1'], ['added', null, 1, 'one = 2'], ['added', null, 2, 'two']]]);
});

test('a file that is not text has no hunks', () => {
  expect(parseHunks('diff --git a/x b/x\nBinary files a/x and b/x differ\n')).toEqual([]);
});
