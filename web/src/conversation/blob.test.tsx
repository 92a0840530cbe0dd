import { act, cleanup, render } from '@testing-library/react';
import { afterEach, expect, test, vi } from 'vitest';
import { type Host, HostContext } from '../state/host';
import { usePicture } from './blob';

afterEach(() => {
  cleanup();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function Shown({ url }: { url: string }) {
  const src = usePicture({ type: 'file', mediaType: 'image/png', url });
  return src ? <img src={src} alt="it" /> : null;
}

test('a new image is shown from its old object URL until the stored one has loaded', async () => {
  vi.useFakeTimers();
  let created = 0;
  const revoked: string[] = [];
  vi.stubGlobal('URL', Object.assign(URL, { createObjectURL: () => `blob:${(created += 1)}`, revokeObjectURL: (url: string) => revoked.push(url) }));
  let store = (_: Uint8Array) => {};
  const host = { client: { call: () => new Promise<Uint8Array>((resolve) => (store = resolve)) } } as unknown as Host;
  const picture = (url: string) => (
    <HostContext value={host}>
      <Shown url={url} />
    </HostContext>
  );
  const page = render(picture('data:image/png;base64,AA=='));
  await act(() => Promise.resolve());
  page.rerender(picture('/api/blobs/abc'));
  await vi.advanceTimersByTimeAsync(60_000);
  expect([page.getByAltText('it').getAttribute('src'), revoked]).toEqual(['blob:1', []]);
  await act(async () => store(new Uint8Array()));
  expect([page.getByAltText('it').getAttribute('src'), revoked]).toEqual(['blob:2', []]);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(revoked).toEqual(['blob:1']);
});
