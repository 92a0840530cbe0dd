import { BadAnswer, readEvents } from '@clew/client';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { Client, mountPath } from './client';
import { errorText, Problem, Unreachable } from './problem';
import { loadToken } from './token';
import { modelName } from './types';

async function read(...pieces: string[]): Promise<string[]> {
  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>({
    start(sink) {
      for (const piece of pieces) sink.enqueue(encoder.encode(piece));
      sink.close();
    },
  });
  const found: string[] = [];
  for await (const { data } of readEvents(body)) found.push(data);
  return found;
}

describe('readEvents', () => {
  it('parses frames across chunk boundaries', async () => {
    const text = ': hello\n\ndata: {"a":"ü"}\n\ndata: 1\ndata: 2\n\n';
    for (let cut = 0; cut < text.length; cut += 1) {
      expect(await read(text.slice(0, cut), text.slice(cut))).toEqual(['{"a":"ü"}', '1\n2']);
    }
  });

  it('rejects an endless event, in one line or in many', async () => {
    for (const piece of ['x'.repeat(1000), 'data: x\n'.repeat(125)]) {
      let sent = 0;
      const body = new ReadableStream<Uint8Array>({
        pull(sink) {
          sent += 1;
          sink.enqueue(new TextEncoder().encode(piece));
        },
      });
      await expect(readEvents(body, undefined, 10_000).next()).rejects.toBeInstanceOf(BadAnswer);
      expect(sent).toBeLessThan(20);
    }
    // Many small events are fine.
    expect(await read(...Array.from({ length: 9 }, () => 'data: 1\r\n\r\n'))).toHaveLength(9);
  });

  it('drops an incomplete frame', async () => {
    expect(await read('data: 1\n\ndata: 2')).toEqual(['1']);
  });
});

describe('Client', () => {
  const answering = (status: number, body: unknown) => vi.fn(async () => new Response(status === 204 ? null : JSON.stringify(body), { status }));

  it('sends ids, queries and the token', async () => {
    const fetchStub = answering(200, { messages: [] });
    await new Client('secret', '', fetchStub as never).call('GET /api/sessions/{id}/messages', { path: { id: 'a/b' }, query: { limit: 5 } });
    const [url, init] = fetchStub.mock.calls[0] as unknown as [string, RequestInit];
    expect(url).toBe('/api/sessions/a%2Fb/messages?limit=5');
    expect(new Headers(init.headers).get('authorization')).toBe('Bearer secret');
  });

  it('throws error responses with their code', async () => {
    const client = new Client('t', '', answering(409, { code: 'run_in_flight', detail: 'a run is live' }) as never);
    await expect(client.call('GET /api/health', {})).rejects.toMatchObject({ status: 409, code: 'run_in_flight', message: 'a run is live' });
  });

  it('reports an invalid token', async () => {
    const client = new Client('t', '', answering(401, {}) as never);
    client.onUnauthorized = vi.fn();
    await expect(client.call('GET /api/models', {})).rejects.toBeInstanceOf(Problem);
    expect(client.onUnauthorized).toHaveBeenCalledOnce();
  });

  it('distinguishes an unreachable server from an error response', async () => {
    const client = new Client('t', '', vi.fn(async () => Promise.reject(new TypeError('failed'))) as never);
    await expect(client.call('GET /api/health', {})).rejects.toBeInstanceOf(Unreachable);
  });

  const never = (signal?: AbortSignal | null) => new Promise<Response>((_, reject) => signal?.addEventListener('abort', () => reject(new DOMException('aborted', 'AbortError'))));

  it('waits for a slow call only while the server is reachable', async () => {
    let health = 3;
    const fetchStub = vi.fn(async (input: string, init: RequestInit) => {
      if (input !== '/api/health' || health === 0) return never(init.signal);
      health -= 1;
      return new Response('{}');
    });
    await expect(new Client('t', '', fetchStub as never, 5).call('GET /api/models')).rejects.toBeInstanceOf(Unreachable);
    expect(health).toBe(0);
  });

  it('applies the timeout to the body as well', async () => {
    const dripping = (signal?: AbortSignal | null) => {
      const body = new ReadableStream({ start: (sink) => signal?.addEventListener('abort', () => sink.error(new DOMException('aborted', 'AbortError'))) });
      return Promise.resolve(new Response(body, { headers: { 'content-type': 'application/json' } }));
    };
    for (const answer of [never, dripping]) {
      const fetchStub = vi.fn((_: string, init: RequestInit) => answer(init.signal));
      await expect(new Client('t', '', fetchStub as never).call('GET /api/models', { timeoutMs: 5 })).rejects.toBeInstanceOf(Unreachable);
    }
    const own = new AbortController();
    own.abort();
    const fetchStub = vi.fn((_: string, init: RequestInit) => (init.signal?.aborted ? Promise.reject(new DOMException('aborted', 'AbortError')) : never(init.signal)));
    await expect(new Client('t', '', fetchStub as never).call('GET /api/models', { signal: own.signal })).rejects.toMatchObject({ name: 'AbortError' });
  });

  it('handles a response that is not JSON', async () => {
    const client = new Client('t', '', vi.fn(async () => new Response('<html>', { status: 502 })) as never);
    await expect(client.call('GET /api/health', {})).rejects.toMatchObject({ status: 502, code: 'http_502' });
  });
});

describe('a proxy that answers instead of the server', () => {
  it.each([
    ['a page', new Response('<html>', { status: 200, headers: { 'content-type': 'text/html; charset=utf-8' } })],
    ['a text', new Response('ok', { status: 200, headers: { 'content-type': 'text/plain' } })],
    ['no JSON', new Response('login', { status: 200, headers: { 'content-type': 'application/json' } })],
    ['a redirect', new Response(null, { status: 307, headers: { location: 'https://elsewhere.example/' } })],
    ['a redirect as browsers show it', Object.defineProperty(Response.error(), 'type', { value: 'opaqueredirect' })],
  ])('with %s is not believed', async (_, answer) => {
    const failed = new Client('t', '', (async () => answer) as never).call('DELETE /api/sessions/{id}', { path: { id: 'x' } });
    await expect(failed).rejects.toBeInstanceOf(BadAnswer);
  });

  it('receives nothing through a redirect', async () => {
    const fetchStub = vi.fn(async () => new Response('{}', { status: 200 }));
    await new Client('t', '', fetchStub as never).call('GET /api/health', {});
    expect((fetchStub.mock.calls[0] as unknown as [string, RequestInit])[1].redirect).toBe('manual');
  });

  it.each(['', '.', '..'])('an id of %j is rejected', async (id) => {
    await expect(new Client('t').ask('GET /api/sessions/{id}', { path: { id } })).rejects.toThrow('invalid id');
  });

  it('is reported with a message', () => {
    expect(errorText(new BadAnswer('x'))).toMatch(/^The server sent an unexpected response\. .*log in again$/);
  });
});

describe('mountPath', () => {
  it.each([
    ['http://h/', ''],
    ['http://h/#token=x', ''],
    ['http://h/x/', '/x'],
    ['http://h/x/y/?q#s', '/x/y'],
  ])('of %s', (base, path) => expect(mountPath(base)).toBe(path));
});

describe('the token', () => {
  beforeEach(() => window.localStorage.clear());

  it('moves from the fragment to the storage', () => {
    window.history.replaceState(null, '', '/#token=se%20cret');
    expect(loadToken()).toBe('se cret');
    expect(window.location.hash).toBe('');
    expect(loadToken()).toBe('se cret');
  });

  it('is null without a fragment', () => {
    window.history.replaceState(null, '', '/');
    expect(loadToken()).toBeNull();
  });
});

describe('models', () => {
  it('are named with their variant', () => {
    expect(modelName({ provider_id: 'demo', model_id: 'long', variant: 'slow' })).toBe('demo/long:slow');
    expect(modelName({ provider_id: 'ollama', model_id: 'llama3:8b' })).toBe('ollama/llama3:8b');
  });
});

describe('errorText', () => {
  it('returns a sentence for anything thrown', () => {
    expect([errorText(new Error('no room')), errorText(new TypeError('x is not a function'))]).toEqual(['No room', 'Something went wrong in this page. Reload the page; nothing you sent is lost']);
  });
});
