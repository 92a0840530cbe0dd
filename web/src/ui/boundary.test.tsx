// @vitest-environment happy-dom
import { act } from 'react';
import { createRoot } from 'react-dom/client';
import { expect, test, vi } from 'vitest';
import { Boundary } from './boundary';

function Broken({ with: value }: { with: string }) {
  if (value === 'bad') throw new TypeError('cannot be drawn');
  return <p>{value}</p>;
}

test('what cannot be drawn is said in its place, the rest stays, and something else is tried anew', () => {
  vi.spyOn(console, 'error').mockImplementation(() => {});
  const place = document.createElement('div');
  const root = createRoot(place);
  const draw = (value: string) =>
    act(() =>
      root.render(
        <>
          <Boundary what="This message" of={value}>
            <Broken with={value} />
          </Boundary>
          <p>the rest</p>
        </>,
      ),
    );
  draw('bad');
  expect(place.textContent).toContain('This message cannot be shown. Nothing of it is lost');
  expect(place.textContent).toContain('the rest');
  draw('good');
  expect(place.textContent).toBe('goodthe rest');
});
