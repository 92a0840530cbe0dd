/** The one way to the server: typed by the OpenAPI document, every refusal a `Problem`. */

import type { Operations } from '../schema.js';
import { BadAnswer, Problem, problemOf, Unreachable } from './problem.js';

export type Operation = keyof Operations;
export type Answer<K extends Operation> = Operations[K]['answer'];

export interface Asked<K extends Operation> {
  path?: Operations[K]['path'];
  query?: Operations[K]['query'];
  body?: Operations[K]['body'];
  signal?: AbortSignal;
  accept?: string;
}

/** Operations whose answer is bytes, whatever kind of bytes those are. */
const BYTES: readonly string[] = ['GET /api/sessions/{id}/export', 'GET /api/blobs/{sha256}', 'GET /assets/{file}'] satisfies Operation[];

/** `base` is where the server's page is, without a slash at its end; a page of the server's own needs none. */
export class Client {
  /** Called when the server does not know the token. */
  onUnauthorized: () => void = () => undefined;

  constructor(
    readonly token: string,
    readonly base: string = '',
    private readonly reach: typeof fetch = (...args) => fetch(...args),
  ) {}

  /** An operation by its route, with what it takes; what it answers, or a `Problem`. */
  async call<K extends Operation>(operation: K, asked: Asked<K> = {}): Promise<Answer<K>> {
    const response = await this.ask(operation, asked);
    if (response.status === 204) return undefined as Answer<K>;
    if (BYTES.includes(operation)) return (await response.blob()) as Answer<K>;
    const kind = response.headers.get('content-type') ?? '';
    // Whoever asks to be logged in to answers 200 with a page of its own.
    if (kind.startsWith('text/html') && operation !== 'GET /') throw new BadAnswer('it answers with a page');
    const text = await response.text();
    if (kind.startsWith('text/')) return text as Answer<K>;
    try {
      return JSON.parse(text) as Answer<K>;
    } catch {
      throw new BadAnswer('its answer is no JSON');
    }
  }

  /** The same, with the answer as it comes. */
  async ask<K extends Operation>(operation: K, asked: Asked<K> = {}): Promise<Response> {
    const [method, template] = operation.split(' ') as [string, string];
    const values = (asked.path ?? {}) as Record<string, string>;
    const path = template.replace(/\{(\w+)\}/g, (_, name: string) => segment(values[name] ?? ''));
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(asked.query ?? {})) {
      if (value !== undefined && value !== null) query.set(name, String(value));
    }
    const headers: Record<string, string> = asked.body === undefined ? {} : { 'content-type': 'application/json' };
    if (asked.accept) headers.accept = asked.accept;
    return this.fetch(path + (query.size ? `?${query}` : ''), {
      method,
      body: asked.body === undefined ? undefined : JSON.stringify(asked.body),
      headers,
      signal: asked.signal,
    });
  }

  /** `fetch` with the token; a refusal is thrown as a `Problem`, a redirect as `BadAnswer`, no answer at all as `Unreachable`. */
  readonly fetch = async (input: RequestInfo | URL, init: RequestInit = {}): Promise<Response> => {
    const headers = new Headers(init.headers);
    // Without a token the host knows who asks, by a cookie of its own.
    if (this.token) headers.set('authorization', `Bearer ${this.token}`);
    let response: Response;
    try {
      response = await this.reach(typeof input === 'string' ? this.base + input : input, {
        ...init,
        headers,
        credentials: this.token ? 'omit' : 'same-origin',
        cache: 'no-store',
        // Neither the token nor what is said goes anywhere else.
        redirect: 'manual',
      });
    } catch (error) {
      if (error instanceof DOMException && error.name === 'AbortError') throw error;
      throw new Unreachable(error);
    }
    if (response.ok) return response;
    if (response.type === 'opaqueredirect' || (response.status >= 300 && response.status < 400)) throw new BadAnswer('it says to look elsewhere');
    const problem = await problemOf(response);
    if (problem.status === 401) this.onUnauthorized();
    throw problem;
  };
}

/** An id as a part of a path. One that would lead to another path was not given out by clew. */
function segment(id: string): string {
  if (['', '.', '..'].includes(id)) throw new Problem(422, 'invalid_id', `'${id}' cannot be an id`);
  return encodeURIComponent(id);
}
