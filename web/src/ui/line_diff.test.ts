import { describe, expect, it } from 'vitest';
import { type DiffLine, lineDiff, withContext } from './line_diff';

const sides = (lines: DiffLine[]) => ({
  left: lines.filter((line) => line.kind !== 'added').map((line) => line.text).join('\n'),
  right: lines.filter((line) => line.kind !== 'removed').map((line) => line.text).join('\n'),
});

describe('lineDiff', () => {
  it('finds the one line that changed', () => {
    expect(lineDiff('a\nb\nc', 'a\nx\nc')).toEqual([
      { kind: 'same', text: 'a' },
      { kind: 'removed', text: 'b' },
      { kind: 'added', text: 'x' },
      { kind: 'same', text: 'c' },
    ]);
  });

  it('transforms any text into any other, with no more lines than both', () => {
    let seed = 7;
    const random = (below: number) => {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      return seed % below;
    };
    for (let round = 0; round < 500; round += 1) {
      const text = () => Array.from({ length: random(9) }, () => 'abcd'[random(4)]).join('\n');
      const [left, right] = [text(), text()];
      const lines = lineDiff(left, right);
      expect(sides(lines)).toEqual({ left, right });
    }
  });

  it('finds the shortest diff', () => {
    const changed = lineDiff('a\nb\nc\na\nb\nb\na', 'c\nb\na\nb\na\nc').filter((line) => line.kind !== 'same');
    expect(changed).toHaveLength(5);
  });
});

describe('withContext', () => {
  it('shows no unchanged text', () => {
    expect(withContext(lineDiff('a\nb', 'a\nb'))).toEqual([]);
  });

  it('keeps a few lines around a change and counts the rest', () => {
    const left = Array.from({ length: 20 }, (_, index) => `line ${index}`);
    const right = left.with(10, 'other');
    const shown = withContext(lineDiff(left.join('\n'), right.join('\n')), 1);
    expect(shown).toEqual([
      { kind: 'gap', count: 9 },
      { kind: 'same', text: 'line 9' },
      { kind: 'removed', text: 'line 10' },
      { kind: 'added', text: 'other' },
      { kind: 'same', text: 'line 11' },
      { kind: 'gap', count: 8 },
    ]);
  });
});
