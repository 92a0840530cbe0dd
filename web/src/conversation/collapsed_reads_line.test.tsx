import { cleanup, render } from '@testing-library/react';
import { afterEach, expect, test } from 'vitest';
import type { Part } from '../api/types';
import { CollapsedReadsLine } from './collapsed_reads_line';
import { ThreadState, ThreadStateContext } from './thread_state';

afterEach(cleanup);

const parts = ['one', 'two', 'three'].map((toolCallId, at) => ({ at, part: { type: 'tool-read', toolCallId, state: 'output-available', input: {}, output: '' } as Part }));

function isOpen(thread: ThreadState): string | null {
  const shown = render(
    <ThreadStateContext value={thread}>
      <CollapsedReadsLine id="looks" parts={parts}>
        {({ at }) => <p key={at}>{at}</p>}
      </CollapsedReadsLine>
    </ThreadStateContext>,
  );
  return shown.getByRole('button', { name: 'Read 3 files' }).getAttribute('aria-expanded');
}

test('collapsed reads are open only if one of them was', () => {
  expect(isOpen(new ThreadState())).toBe('false');
  cleanup();
  const thread = new ThreadState();
  thread.opened.set('tool two', true);
  expect(isOpen(thread)).toBe('true');
});
