/** The HTTP client: typed by the OpenAPI document, every error response thrown as a `Problem`. */
import type { Operations } from '../schema.js';
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
/** `base` is the URL of the server's page, without a trailing slash; empty on a page that the server itself serves. */
export declare class Client {
    readonly token: string;
    readonly base: string;
    private readonly fetchImpl;
    private readonly silenceMs;
    /** Called when the server rejects the token. */
    onUnauthorized: () => void;
    constructor(token: string, base?: string, fetchImpl?: typeof fetch, silenceMs?: number);
    /** Call an operation by its route and return its parsed response. */
    call<K extends Operation>(operation: K, options?: Asked<K>): Promise<Answer<K>>;
    /** Run a call for as long as the server answers health checks; throw `Unreachable` when it does not. */
    private withHealthCheck;
    /** Call an operation and return the raw response. */
    ask<K extends Operation>(operation: K, options?: Asked<K>): Promise<Response>;
    /** `fetch` with the token. Throws `Problem` for an error response, `BadAnswer` for a redirect, `Unreachable` without a response. */
    readonly fetch: (input: RequestInfo | URL, init?: RequestInit) => Promise<Response>;
}
