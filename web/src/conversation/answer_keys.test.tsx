import { act, cleanup, render } from '@testing-library/react';
import { useRef } from 'react';
import { afterEach, expect, test } from 'vitest';
import { view } from '../state/view';
import { useAnswerKeys } from './answer_keys';
import { Memory, MemoryContext } from './memory';

afterEach(() => {
  cleanup();
  view.set({ opened: null });
});

function Waiting({ answered }: { answered: string[] }) {
  const ref = useRef<HTMLDivElement>(null);
  useAnswerKeys(ref, true, (key) => answered.push(key) > 0);
  return <div ref={ref} data-waits="a" />;
}

function waiting() {
  const answered: string[] = [];
  const memory = new Memory();
  const shown = render(
    <MemoryContext value={memory}>
      <main>
        <select aria-label="elsewhere" />
        <Waiting answered={answered} />
      </main>
    </MemoryContext>,
  );
  const press = (key: string, shiftKey = false) => {
    memory.answered = -Infinity;
    act(() => void window.dispatchEvent(new KeyboardEvent('keydown', { key, shiftKey, cancelable: true })));
  };
  return { answered, press, shown };
}

test('with Caps Lock on a letter means what it means without, and Shift alone means all', () => {
  const { answered, press } = waiting();
  press('y');
  press('Y'); // Caps Lock
  press('Y', true);
  press('y', true); // both
  expect(answered).toEqual(['y', 'y', 'Y', 'Y']);
});

test('what is typed for a dialog that is on its way, or into a choice elsewhere, answers nothing', () => {
  const { answered, press, shown } = waiting();
  view.set({ opened: 'palette' });
  press('y');
  view.set({ opened: null });
  shown.getByLabelText('elsewhere').focus();
  press('p');
  expect(answered).toEqual([]);
});
