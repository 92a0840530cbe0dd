/** The HTTP client: typed by the OpenAPI document, every error response thrown as a `Problem`. */

import type { Operations } from '../schema.js';
import { readBody } from './body.js';
import { BadAnswer, Problem, problemOf, Unreachable } from './problem.js';

export type Operation = keyof Operations;
export type Answer<K extends Operation> = Operations[K]['answer'];

export interface Asked<K extends Operation> {
  path?: Operations[K]['path'];
  query?: Operations[K]['query'];
  body?: Operations[K]['body'];
  signal?: AbortSignal;
  /** Time limit for the whole call, in milliseconds. Without it the call waits while the server is reachable. */
  timeoutMs?: number;
  accept?: string;
}

/** Operations that return bytes. */
const BYTES: readonly string[] = ['GET /api/sessions/{id}/export', 'GET /api/blobs/{sha256}', 'GET /assets/{file}'] satisfies Operation[];
const TEXTS: readonly string[] = ['GET /', 'GET /metrics'] satisfies Operation[];
/** Error bodies are a few lines. */
const MAX_ERROR_BYTES = 1024 * 1024;
/** Time without a response after which the server's health is checked, and the time limit of that check. */
const SILENCE_MS = 10_000;

/** `base` is the URL of the server's page, without a trailing slash; empty on a page that the server itself serves. */
export class Client {
  /** Called when the server rejects the token. */
  onUnauthorized: () => void = () => undefined;

  constructor(
    readonly token: string,
    readonly base: string = '',
    private readonly fetchImpl: typeof fetch = (...args) => fetch(...args),
    private readonly silenceMs: number = SILENCE_MS,
  ) {}

  /** Call an operation by its route and return its parsed response. */
  async call<K extends Operation>(operation: K, options: Asked<K> = {}): Promise<Answer<K>> {
    return this.withHealthCheck(options, async (signal) => {
      const response = await this.ask(operation, { ...options, signal });
      if (response.status === 204) return undefined as Answer<K>;
      const bytes = BYTES.includes(operation);
      // A login proxy answers 200 with a page of its own.
      const page = response.headers.get('content-type')?.startsWith('text/html') ?? false;
      if (page && !bytes && operation !== 'GET /') throw new BadAnswer('it returned an HTML page');
      const body = await readBody(response);
      if (bytes) return body as Answer<K>;
      const text = await body.text();
      if (TEXTS.includes(operation)) return text as Answer<K>;
      try {
        return JSON.parse(text) as Answer<K>;
      } catch {
        throw new BadAnswer('the response is not JSON');
      }
    });
  }

  /** Run a call for as long as the server answers health checks; throw `Unreachable` when it does not. */
  private async withHealthCheck<T>(options: { signal?: AbortSignal; timeoutMs?: number }, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    // One controller, referenced here: a signal from `AbortSignal.any` may be collected before it fires.
    const controller = new AbortController();
    const abort = () => controller.abort();
    const { signal } = controller;
    const checkHealth = async () => {
      timer = setTimeout(abort, this.silenceMs);
      try {
        const response = await this.fetchImpl(`${this.base}/api/health`, { signal, redirect: 'manual', cache: 'no-store', credentials: 'omit' });
        // Some proxies send headers and never a body.
        await readBody(response, MAX_ERROR_BYTES);
        clearTimeout(timer);
        if (!signal.aborted) timer = setTimeout(() => void checkHealth(), this.silenceMs);
      } catch {
        abort();
      }
    };
    let timer = setTimeout(() => void checkHealth(), this.silenceMs);
    const timeout = options.timeoutMs === undefined ? undefined : setTimeout(abort, options.timeoutMs);
    options.signal?.addEventListener('abort', abort);
    if (options.signal?.aborted) abort();
    try {
      return await work(signal);
    } catch (error) {
      // An interrupted body throws the platform's own error.
      if (options.signal?.aborted || !(signal.aborted || error instanceof TypeError)) throw error;
      throw new Unreachable(error);
    } finally {
      clearTimeout(timer);
      clearTimeout(timeout);
      options.signal?.removeEventListener('abort', abort);
      abort();
    }
  }

  /** Call an operation and return the raw response. */
  async ask<K extends Operation>(operation: K, options: Asked<K> = {}): Promise<Response> {
    const [method, template] = operation.split(' ') as [string, string];
    const values = (options.path ?? {}) as Record<string, string>;
    const path = template.replace(/\{(\w+)\}/g, (_, name: string) => segment(values[name] ?? ''));
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(options.query ?? {})) {
      if (value !== undefined && value !== null) query.set(name, String(value));
    }
    const headers: Record<string, string> = options.body === undefined ? {} : { 'content-type': 'application/json' };
    if (options.accept) headers.accept = options.accept;
    return this.fetch(path + (query.size ? `?${query}` : ''), {
      method,
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      headers,
      signal: options.signal,
    });
  }

  /** `fetch` with the token. Throws `Problem` for an error response, `BadAnswer` for a redirect, `Unreachable` without a response. */
  readonly fetch = async (input: RequestInfo | URL, init: RequestInit = {}): Promise<Response> => {
    const headers = new Headers(init.headers);
    // Without a token the host application identifies the user by its own cookie.
    if (this.token) headers.set('authorization', `Bearer ${this.token}`);
    let response: Response;
    try {
      response = await this.fetchImpl(typeof input === 'string' ? this.base + input : input, {
        ...init,
        headers,
        credentials: this.token ? 'omit' : 'same-origin',
        cache: 'no-store',
        // Never send the token or a prompt to another server.
        redirect: 'manual',
      });
    } catch (error) {
      if (error instanceof DOMException && error.name === 'AbortError') throw error;
      throw new Unreachable(error);
    }
    if (response.ok) return response;
    if (response.type === 'opaqueredirect' || (response.status >= 300 && response.status < 400)) throw new BadAnswer('it redirects');
    // An unreadable body leaves the status to report.
    const text = await readBody(response, MAX_ERROR_BYTES).then((body) => body.text(), () => '');
    const problem = problemOf(response, text);
    if (problem.status === 401) this.onUnauthorized();
    throw problem;
  };
}

/** Encode an id as a path segment; reject ids that would change the path. */
function segment(id: string): string {
  if (['', '.', '..'].includes(id)) throw new Problem(422, 'invalid_id', `invalid id: '${id}'`);
  return encodeURIComponent(id);
}
