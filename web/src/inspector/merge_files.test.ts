import { expect, test } from 'vitest';
import type { TouchedFile } from '../api/types';
import { mergeFiles } from './merge_files';

const file = (path: string, count: number, modified: boolean, at: number): TouchedFile => ({ path, count, changes: modified ? count : 0, read: !modified, modified, last_turn_id: `t${at}`, last_at: at });

test('counts are added up, and the last use is kept', () => {
  expect(mergeFiles([file('b', 1, false, 9), file('a', 2, false, 8)], [file('a', 3, true, 4), file('c', 1, true, 2)])).toEqual([
    file('b', 1, false, 9),
    { ...file('a', 5, false, 8), changes: 3, modified: true },
    file('c', 1, true, 2),
  ]);
});
