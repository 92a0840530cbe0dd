import { render } from '@testing-library/react';
import { expect, test, vi } from 'vitest';
import { RowGuard } from './row_guard';

test('a row that cannot be drawn says so, leaves the others, and is tried again when it changes', () => {
  vi.spyOn(console, 'error').mockImplementation(() => undefined);
  const Drawn = ({ text }: { text: string | null }) => <p>{text!.trim()}</p>;
  const rows = (text: string | null) => (
    <main>
      <RowGuard shown={text}>
        <Drawn text={text} />
      </RowGuard>
      <p>another</p>
    </main>
  );
  const { container, rerender } = render(rows(null));
  expect(container.textContent).toMatch(/^This message cannot be shown here.*TypeError.*another$/s);
  rerender(rows('mended'));
  expect(container.textContent).toBe('mendedanother');
});
