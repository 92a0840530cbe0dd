import { expect, test, vi } from 'vitest';
import { Client } from '../api/client';
import { textOf } from '../api/types';
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

test('what was read to open a session does not replace a status event that came meanwhile', async () => {
  const { conversation, answer } = delayed((pathname) => asRead(pathname, 'busy'));
  const opened = conversation.open();
  conversation.onEvent({ type: 'status', status: { state: 'retrying' } });
  answer();
  await opened;
  expect([conversation.store.get().loaded, conversation.store.get().status]).toEqual([true, { state: 'retrying' }]);
  conversation.close();
});

test('messages requested before a stream do not replace the streamed ones', async () => {
  const chunks = [{ type: 'start', messageId: 'msg_2' }, { type: 'text-start', id: 't' }, { type: 'text-delta', id: 't', delta: 'said' }, { type: 'text-end', id: 't' }, { type: 'finish' }];
  const stream = [...chunks.map((chunk) => JSON.stringify(chunk)), '[DONE]'].map((data) => `data: ${data}\n\n`).join('');
  const { conversation, waiting, answer } = delayed((pathname) => (pathname.endsWith('/api/chat') ? new Response(stream, { headers: { 'content-type': 'text/event-stream' } }) : asRead(pathname, 'idle')));
  const refreshed = conversation.refresh();
  await vi.waitFor(() => expect(waiting).toHaveLength(3));
  await conversation.send({ text: 'say it' });
  await vi.waitFor(() => expect(conversation.streaming).toBe(false));
  answer();
  await refreshed;
  expect(conversation.messages.map(({ role }) => role)).toEqual(['user', 'assistant']);
});

test('while the stream of a turn is lost, what is stored does not replace what is shown; at its end it does', async () => {
  const streams: { asked: string; respond: (response: Response) => void }[] = [];
  let stored = 'one';
  const bodies = (pathname: string) => (pathname.endsWith('/messages') ? { messages: [{ id: 'msg_1', role: 'assistant', parts: [{ type: 'text', text: stored }] }] } : asRead(pathname, 'busy'));
  const fetchStub = (input: string) => {
    const { pathname, search } = new URL(input, 'http://127.0.0.1');
    if (!pathname.endsWith('/stream')) return Promise.resolve(Response.json(bodies(pathname)));
    return new Promise<Response>((respond) => streams.push({ asked: search, respond }));
  };
  const stream = (...frames: string[]) => new Response(frames.map((frame) => `${frame}\n\n`).join(''), { headers: { 'content-type': 'text/event-stream' } });
  const chunk = (n: number, value: object) => `id: msg_1:${n}\ndata: ${JSON.stringify(value)}`;
  const conversation = new Conversation('ses_1', new Client('token', '', fetchStub as typeof fetch));
  const shown = () => conversation.messages.map(textOf);
  await conversation.open();
  await vi.waitFor(() => expect(streams).toHaveLength(1));
  // It ends without its last frame: the connection was lost, and the next one is not there yet.
  streams[0]!.respond(stream(chunk(1, { type: 'start', messageId: 'msg_1' }), chunk(2, { type: 'text-start', id: 't' }), chunk(3, { type: 'text-delta', id: 't', delta: 'one two' })));
  await vi.waitFor(() => expect(streams).toHaveLength(2));
  await vi.waitFor(() => expect(shown()).toEqual(['one two']));
  expect([conversation.store.get().stream, streams[1]!.asked]).toEqual(['lost', '?after=msg_1%3A3']);
  await conversation.refresh();
  conversation.onEvent({ type: 'session_updated' });
  expect(shown()).toEqual(['one two']);
  // Back: asked again at once.
  await conversation.onBack();
  await vi.waitFor(() => expect(streams).toHaveLength(3));
  stored = 'one two three.';
  streams[2]!.respond(stream(chunk(4, { type: 'text-delta', id: 't', delta: ' three' }), 'data: [DONE]'));
  await vi.waitFor(() => expect(shown()).toEqual(['one two three.']));
  conversation.close();
});
