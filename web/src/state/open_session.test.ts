import { expect, test, vi } from 'vitest';
import { Client } from '../api/client';
import { Conversation } from './conversation';

/** A conversation with a server that responds when `answer` is called. */
function delayed(bodies: (pathname: string) => unknown) {
  const waiting: (() => void)[] = [];
  const fetchStub = (input: RequestInfo | URL) => {
    const { pathname } = new URL(String(input instanceof Request ? input.url : input), 'http://127.0.0.1');
    const body = bodies(pathname);
    return body instanceof Response ? Promise.resolve(body) : new Promise<Response>((resolve) => waiting.push(() => resolve(Response.json(body))));
  };
  const conversation = new Conversation('ses_1', new Client('token', '', fetchStub as typeof fetch));
  return { conversation, waiting, answer: () => waiting.splice(0).forEach((resolve) => resolve()) };
}

const asRead = (pathname: string, state: string): unknown =>
  pathname.endsWith('/messages') ? { messages: [] } : pathname.endsWith('/tree') ? { turns: [], branches: [] } : { id: 'ses_1', status: { state } };

test('an older status response does not replace a newer event', async () => {
  const { conversation, answer } = delayed((pathname) => asRead(pathname, 'busy'));
  const refreshed = conversation.refresh();
  conversation.onEvent({ type: 'status', status: { state: 'idle' } });
  answer();
  await refreshed;
  expect(conversation.store.get().session?.id).toBe('ses_1');
  expect(conversation.store.get().status).toEqual({ state: 'idle' });
  // A later request counts.
  const later = conversation.refresh();
  answer();
  await later;
  expect(conversation.store.get().status).toEqual({ state: 'busy' });
});

test('messages requested before a stream do not replace the streamed ones', async () => {
  const chunks = [{ type: 'start', messageId: 'msg_2' }, { type: 'text-start', id: 't' }, { type: 'text-delta', id: 't', delta: 'said' }, { type: 'text-end', id: 't' }, { type: 'finish' }];
  const stream = [...chunks.map((chunk) => JSON.stringify(chunk)), '[DONE]'].map((data) => `data: ${data}\n\n`).join('');
  const { conversation, waiting, answer } = delayed((pathname) => (pathname.endsWith('/api/chat') ? new Response(stream, { headers: { 'content-type': 'text/event-stream' } }) : asRead(pathname, 'idle')));
  const refreshed = conversation.refresh();
  await vi.waitFor(() => expect(waiting).toHaveLength(3));
  await conversation.send({ text: 'say it' });
  await vi.waitFor(() => expect(conversation.chat.status).toBe('ready'));
  answer();
  await refreshed;
  expect(conversation.chat.messages.map(({ role }) => role)).toEqual(['user', 'assistant']);
});
