import { cleanup, render } from '@testing-library/react';
import { afterEach, expect, test } from 'vitest';
import type { Part } from '../api/types';
import { LooksLine } from './looks_line';
import { Memory, MemoryContext } from './memory';

afterEach(cleanup);

const parts = ['one', 'two', 'three'].map((toolCallId, at) => ({ at, part: { type: 'tool-read', toolCallId, state: 'output-available', input: {}, output: '' } as Part }));

function isOpen(memory: Memory): string | null {
  const shown = render(
    <MemoryContext value={memory}>
      <LooksLine id="looks" parts={parts}>
        {({ at }) => <p key={at}>{at}</p>}
      </LooksLine>
    </MemoryContext>,
  );
  return shown.getByRole('button', { name: 'Read 3 files' }).getAttribute('aria-expanded');
}

test('looks become a line that is open only where one of them was', () => {
  expect(isOpen(new Memory())).toBe('false');
  cleanup();
  const memory = new Memory();
  memory.opened.set('tool two', true);
  expect(isOpen(memory)).toBe('true');
});
