import { expect, test } from 'vitest';
import { Client } from '../api/client';
import { Conversation } from './conversation';

test('a status that was asked for before the host told a newer one does not replace it', async () => {
  const answers: (() => void)[] = [];
  const reach = (input: RequestInfo | URL) => {
    const { pathname } = new URL(String(input instanceof Request ? input.url : input), 'http://127.0.0.1');
    const body = pathname.endsWith('/messages') ? { messages: [] } : pathname.endsWith('/tree') ? { turns: [], branches: [] } : { id: 'ses_1', status: { state: 'busy' } };
    return new Promise<Response>((resolve) => answers.push(() => resolve(Response.json(body))));
  };
  const conversation = new Conversation('ses_1', new Client('token', '', reach as typeof fetch));
  const asked = conversation.refresh();
  conversation.onEvent({ type: 'status', status: { state: 'idle' } });
  answers.splice(0).forEach((answer) => answer());
  await asked;
  expect(conversation.store.get().session?.id).toBe('ses_1');
  expect(conversation.store.get().status).toEqual({ state: 'idle' });
  // What is asked for after it counts.
  const later = conversation.refresh();
  answers.splice(0).forEach((answer) => answer());
  await later;
  expect(conversation.store.get().status).toEqual({ state: 'busy' });
});
