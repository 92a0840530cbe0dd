/** Merges the file lists of two ranges of turns. */

import type { TouchedFile } from '../api/types';

/** Merge the lists, newest use first, and add up the counts. */
export function mergeFiles(newer: TouchedFile[], older: TouchedFile[]): TouchedFile[] {
  const before = new Map(older.map((file) => [file.path, file]));
  const joined = newer.map((file) => {
    const earlier = before.get(file.path);
    before.delete(file.path);
    return earlier ? { ...file, count: file.count + earlier.count, changes: file.changes + earlier.changes, read: file.read || earlier.read, modified: file.modified || earlier.modified } : file;
  });
  return [...joined, ...before.values()];
}
