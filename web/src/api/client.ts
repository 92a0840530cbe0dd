/** The one way to the server: typed by the OpenAPI document, every refusal a `Problem`. */

import { Problem, problemOf, Unreachable } from './problem';
import type { Operations } from './schema';

export type Operation = keyof Operations;
export type Answer<K extends Operation> = Operations[K]['answer'];

export interface Asked<K extends Operation> {
  path?: Operations[K]['path'];
  query?: Operations[K]['query'];
  body?: Operations[K]['body'];
  signal?: AbortSignal;
}

export class Client {
  /** Called when the server does not know the token. */
  onUnauthorized: () => void = () => undefined;

  constructor(
    readonly token: string,
    readonly base: string = '',
    private readonly reach: typeof fetch = (...args) => fetch(...args),
  ) {}

  async call<K extends Operation>(operation: K, asked: Asked<K> = {}): Promise<Answer<K>> {
    const [method, template] = operation.split(' ') as [string, string];
    const values = (asked.path ?? {}) as Record<string, string>;
    const path = template.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(values[name] ?? ''));
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(asked.query ?? {})) {
      if (value !== undefined && value !== null) query.set(name, String(value));
    }
    const url = path + (query.size ? `?${query}` : '');
    const response = await this.fetch(url, {
      method,
      body: asked.body === undefined ? undefined : JSON.stringify(asked.body),
      headers: asked.body === undefined ? {} : { 'content-type': 'application/json' },
      signal: asked.signal,
    });
    if (response.status === 204) return undefined as Answer<K>;
    return (await response.json()) as Answer<K>;
  }

  /** `fetch` with the token; anything but a 2xx is thrown as a `Problem`, no answer at all as `Unreachable`. */
  readonly fetch = async (input: RequestInfo | URL, init: RequestInit = {}): Promise<Response> => {
    const headers = new Headers(init.headers);
    headers.set('authorization', `Bearer ${this.token}`);
    let response: Response;
    try {
      response = await this.reach(typeof input === 'string' ? this.base + input : input, {
        ...init,
        headers,
        credentials: 'omit',
        cache: 'no-store',
      });
    } catch (error) {
      if (error instanceof DOMException && error.name === 'AbortError') throw error;
      throw new Unreachable(error);
    }
    if (response.ok) return response;
    const problem = await problemOf(response);
    if (problem.status === 401) this.onUnauthorized();
    throw problem;
  };
}

export function isProblem(error: unknown, code: string): boolean {
  return error instanceof Problem && error.code === code;
}

/** Where the page lies on its server, which may be below any path: what every address of the API begins with. */
export function mountPath(base: string = document.baseURI): string {
  return new URL('.', base).pathname.replace(/\/$/, '');
}
