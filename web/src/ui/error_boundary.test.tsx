// @vitest-environment happy-dom
import { act } from 'react';
import { createRoot } from 'react-dom/client';
import { expect, test, vi } from 'vitest';
import { ErrorBoundary } from './error_boundary';

function Broken({ with: value }: { with: string }) {
  if (value === 'bad') throw new TypeError('cannot be drawn');
  return <p>{value}</p>;
}

test('a component that fails shows a message, its siblings stay, and a new value is rendered again', () => {
  vi.spyOn(console, 'error').mockImplementation(() => {});
  const place = document.createElement('div');
  const root = createRoot(place);
  const draw = (value: string) =>
    act(() =>
      root.render(
        <>
          <ErrorBoundary name="This message" resetKey={value}>
            <Broken with={value} />
          </ErrorBoundary>
          <p>the rest</p>
        </>,
      ),
    );
  draw('bad');
  expect(place.textContent).toContain('This message could not be displayed. Nothing is lost');
  expect(place.textContent).toContain('the rest');
  draw('good');
  expect(place.textContent).toBe('goodthe rest');
});
