import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Client } from '../api/client';
import { Problem } from '../api/problem';
import { type Message, textOf } from '../api/types';
import { SessionStream, type StreamState } from './session_stream';

/** A server whose connections are written, ended and cut by the test. */
function scripted() {
  const connections: Connection[] = [];
  const fetchStub = (url: string, { method = 'GET', signal }: RequestInit) => {
    const connection = new Connection(`${method} ${url}`, signal!);
    connections.push(connection);
    return connection.response;
  };
  const seen = { states: [] as StreamState[], texts: [] as string[], messages: new Map<string, Message>(), ended: 0 };
  const stream = new SessionStream('ses_1', new Client('token', '', fetchStub as typeof fetch), {
    state: (state) => seen.states.push(state),
    show: (message) => {
      seen.messages.set(message.id, message);
      if (seen.texts.at(-1) !== textOf(message)) seen.texts.push(textOf(message));
    },
    ended: () => (seen.ended += 1),
  });
  const connected = (count: number) => vi.waitFor(() => expect(connections).toHaveLength(count)).then(() => connections[count - 1]!);
  return { stream, seen, connections, connected };
}

class Connection {
  private sink!: ReadableStreamDefaultController<Uint8Array>;
  private respond!: (response: Response) => void;
  private refuse!: (error: unknown) => void;
  readonly response = new Promise<Response>((respond, refuse) => Object.assign(this, { respond, refuse }));

  constructor(
    readonly asked: string,
    signal: AbortSignal,
  ) {
    signal.addEventListener('abort', () => {
      const error = new DOMException('aborted', 'AbortError');
      this.refuse(error);
      try {
        this.sink?.error(error);
      } catch {
        // It has ended.
      }
    });
  }

  open(): this {
    const body = new ReadableStream<Uint8Array>({ start: (sink) => void (this.sink = sink) });
    this.respond(new Response(body, { headers: { 'content-type': 'text/event-stream' } }));
    return this;
  }

  answer(status: number, body: object | null = null): void {
    this.respond(new Response(body && JSON.stringify(body), { status }));
  }

  /** Send chunks, each with the id after it if it has one. */
  send(...chunks: [object, string?][]): this {
    for (const [chunk, id] of chunks) this.write(`${id === undefined ? '' : `id: ${id}\n`}data: ${JSON.stringify(chunk)}\n\n`);
    return this;
  }

  get isRead(): boolean {
    return this.sink.desiredSize === 1;
  }

  done(): void {
    this.write('data: [DONE]\n\n');
    this.sink.close();
  }

  /** The connection is lost; no response at all, if it was not open. */
  cut(): void {
    this.refuse(new TypeError('network error'));
    this.sink?.error(new TypeError('network error'));
  }

  private write(text: string): void {
    this.sink.enqueue(new TextEncoder().encode(text));
  }
}

const STREAM = 'GET /api/chat/ses_1/stream';
const start = { type: 'start', messageId: 'm' };
const reset = { type: 'data-reset', data: { messageId: 'm' }, transient: true };
const begin = { type: 'text-start', id: 't' };
const say = (delta: string) => ({ type: 'text-delta', id: 't', delta });
const end = { type: 'text-end', id: 't' };
const finish = { type: 'finish' };

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'], shouldAdvanceTime: true }));
afterEach(() => void vi.useRealTimers());

test('a connection that is lost is continued after the position, with the same message', async () => {
  const { stream, seen, connected } = scripted();
  stream.join();
  const first = (await connected(1)).open();
  first.send([start, 'm:1'], [begin, 'm:2'], [say('one '), 'm:3']);
  await vi.waitFor(() => expect(seen.texts).toEqual(['', 'one ']));
  first.cut();
  const second = (await connected(2)).open();
  second.send([say('two'), 'm:4'], [end, 'm:5'], [finish, 'm:6']).done();
  await vi.waitFor(() => expect(seen.ended).toBe(1));
  expect([first.asked, second.asked]).toEqual([STREAM, `${STREAM}?after=m%3A3`]);
  expect(seen.messages.get('m')?.parts).toEqual([{ type: 'text', text: 'one two', state: 'done', providerMetadata: undefined }]);
  expect(seen.states).toEqual(['joining', 'reading', 'lost', 'reading', 'idle']);
});

test('a chunk that has arrived and is not applied yet is not asked for again', async () => {
  const { stream, seen, connected } = scripted();
  stream.join();
  const first = (await connected(1)).open();
  first.send([start, 'm:1'], [begin, 'm:2'], ...Array.from({ length: 50 }, (_, n): [object, string] => [say(`${n} `), `m:${n + 3}`]));
  await vi.waitFor(() => expect(seen.texts.length).toBeGreaterThan(0));
  stream.reconnect();
  const second = (await connected(2)).open();
  const from = Number(/m%3A(\d+)$/.exec(second.asked)![1]) - 2;
  second.send(...Array.from({ length: 50 - from }, (_, n): [object, string] => [say(`${from + n} `), `m:${from + n + 3}`])).done();
  await vi.waitFor(() => expect(seen.ended).toBe(1));
  expect(textOf(seen.messages.get('m')!)).toBe(Array.from({ length: 50 }, (_, n) => `${n} `).join(''));
});

test('a message that begins again, or is joined late, is shown when it is whole', async () => {
  const { stream, seen, connected } = scripted();
  stream.join();
  const first = (await connected(1)).open();
  first.send([start], [begin], [say('one '), 'm:3']);
  await vi.waitFor(() => expect(seen.texts).toEqual(['one ']));
  first.cut();
  const second = (await connected(2)).open();
  second.send([reset], [start], [begin], [say('one ')]);
  await vi.waitFor(() => expect(second.isRead).toBe(true));
  second.cut();
  // It had no position yet: the one before asks for all of it again.
  const third = (await connected(3)).open();
  third.send([reset], [start], [begin], [say('one two '), 'm:4'], [say('three'), 'm:5']).done();
  await vi.waitFor(() => expect(seen.ended).toBe(1));
  expect([second.asked, third.asked]).toEqual([`${STREAM}?after=m%3A3`, `${STREAM}?after=m%3A3`]);
  expect(seen.texts.slice(0, 2)).toEqual(['one ', 'one two ']);
  expect(textOf(seen.messages.get('m')!)).toBe('one two three');
});

test('a turn goes on with its next message, and an error ends nothing but the message', async () => {
  const { stream, seen, connected } = scripted();
  stream.join();
  const first = (await connected(1)).open();
  first.send([start, 'm:1'], [begin, 'm:2'], [say('one'), 'm:3'], [{ type: 'error', errorText: 'no' }, 'm:4'], [finish, 'm:5']);
  first.send([{ ...start, messageId: 'n' }, 'n:1'], [begin, 'n:2'], [say('two'), 'n:3'], [finish, 'n:4']).done();
  await vi.waitFor(() => expect(seen.ended).toBe(1));
  expect([...seen.messages.values()].map((message) => [message.id, textOf(message)])).toEqual([['m', 'one'], ['n', 'two']]);
});

test('a server that is away is asked again later each time, and at once when it is back', async () => {
  const { stream, seen, connections, connected } = scripted();
  stream.join();
  const first = (await connected(1)).open();
  first.send([start, 'm:1']);
  await vi.waitFor(() => expect(seen.messages.size).toBe(1));
  first.cut();
  (await connected(2)).cut();
  await vi.advanceTimersByTimeAsync(900);
  expect(connections).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(200);
  (await connected(3)).answer(503, { code: 'replica_away' });
  await vi.advanceTimersByTimeAsync(1100);
  expect(connections).toHaveLength(3);
  stream.reconnect();
  (await connected(4)).answer(404, { code: 'message_not_found' });
  await vi.waitFor(() => expect(seen.ended).toBe(1));
  expect(connections.slice(1).map(({ asked }) => asked)).toEqual(Array(3).fill(`${STREAM}?after=m%3A1`));
  expect(seen.states).toEqual(['joining', 'reading', 'lost', 'lost', 'lost', 'idle']);
});

test('a connection that has gone silent, as in a tab that slept, is given up and continued; a long upload is not', async () => {
  const { stream, seen, connections, connected } = scripted();
  const sent = stream.send({ id: 'ses_1', messages: [] });
  const first = await connected(1);
  await vi.advanceTimersByTimeAsync(90_000);
  expect(seen.states).toEqual(['sending']);
  first.open();
  await sent;
  await vi.advanceTimersByTimeAsync(45_000);
  const second = (await connected(2)).open();
  second.send([start, 'm:1']);
  await vi.waitFor(() => expect(seen.messages.size).toBe(1));
  await vi.advanceTimersByTimeAsync(45_000);
  (await connected(3)).open().send([finish, 'm:2']).done();
  await vi.waitFor(() => expect(seen.ended).toBe(1));
  expect(connections.map(({ asked }) => asked)).toEqual(['POST /api/chat', STREAM, `${STREAM}?after=m%3A1`]);
});

test('nothing is written where nothing can be joined', async () => {
  const { stream, seen, connected } = scripted();
  stream.join();
  (await connected(1)).answer(204);
  await vi.waitFor(() => expect(seen.ended).toBe(1));
  expect([seen.states, [...seen.messages]]).toEqual([['joining', 'idle'], []]);
});

test('a prompt is accepted or refused before its answer, and continues by its position', async () => {
  const { stream, seen, connections, connected } = scripted();
  const refused = stream.send({ id: 'ses_1', messages: [] });
  (await connected(1)).answer(409, { code: 'run_in_flight', detail: 'busy' });
  await expect(refused).rejects.toEqual(new Problem(409, 'run_in_flight', 'busy', { code: 'run_in_flight', detail: 'busy' }));
  const lost = stream.send({ id: 'ses_1', messages: [] });
  (await connected(2)).cut();
  await expect(lost).rejects.toThrow('the server cannot be reached');
  const sent = stream.send({ id: 'ses_1', messages: [] });
  const answer = (await connected(3)).open();
  await sent;
  answer.send([start, 'm:1'], [begin, 'm:2']);
  await vi.waitFor(() => expect(seen.messages.size).toBe(1));
  answer.cut();
  (await connected(4)).open().send([say('one'), 'm:3']).done();
  await vi.waitFor(() => expect(seen.ended).toBe(3));
  expect(connections.map(({ asked }) => asked)).toEqual([...Array(3).fill('POST /api/chat'), `${STREAM}?after=m%3A2`]);
  expect(textOf(seen.messages.get('m')!)).toBe('one');
});

test('a stream that is closed, or gives way to a prompt, shows nothing more', async () => {
  const { stream, seen, connected } = scripted();
  stream.join();
  await connected(1);
  void stream.send({ id: 'ses_1', messages: [] }).catch(() => undefined);
  const answer = (await connected(2)).open();
  answer.send([start, 'm:1'], [begin, 'm:2']);
  await vi.waitFor(() => expect(seen.messages.size).toBe(1));
  answer.send([say('one'), 'm:3']);
  stream.close();
  await vi.advanceTimersByTimeAsync(100);
  expect([seen.texts, seen.ended, seen.states]).toEqual([[''], 0, ['joining', 'sending', 'reading']]);
});
