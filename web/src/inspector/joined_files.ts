/** The files of two stretches of the line as one list. */

import type { TouchedFile } from '../api/types';

/** `newer` first: a file is known by its last touch, and counted over both. */
export function joinFiles(newer: TouchedFile[], older: TouchedFile[]): TouchedFile[] {
  const before = new Map(older.map((file) => [file.path, file]));
  const joined = newer.map((file) => {
    const earlier = before.get(file.path);
    before.delete(file.path);
    return earlier ? { ...file, count: file.count + earlier.count, changes: file.changes + earlier.changes, read: file.read || earlier.read, modified: file.modified || earlier.modified } : file;
  });
  return [...joined, ...before.values()];
}
