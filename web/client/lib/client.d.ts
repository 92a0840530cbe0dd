/** The one way to the server: typed by the OpenAPI document, every refusal a `Problem`. */
import type { Operations } from '../schema.js';
export type Operation = keyof Operations;
export type Answer<K extends Operation> = Operations[K]['answer'];
export interface Asked<K extends Operation> {
    path?: Operations[K]['path'];
    query?: Operations[K]['query'];
    body?: Operations[K]['body'];
    signal?: AbortSignal;
    /** How long all of it may take, in milliseconds; as long as the server is there, unless said. */
    timeoutMs?: number;
    accept?: string;
}
/** `base` is where the server's page is, without a slash at its end; a page of the server's own needs none. */
export declare class Client {
    readonly token: string;
    readonly base: string;
    private readonly reach;
    private readonly silenceMs;
    /** Called when the server does not know the token. */
    onUnauthorized: () => void;
    constructor(token: string, base?: string, reach?: typeof fetch, silenceMs?: number);
    /** An operation by its route, with what it takes; what it answers, or a `Problem`. */
    call<K extends Operation>(operation: K, asked?: Asked<K>): Promise<Answer<K>>;
    /** Work that takes long is waited for as long as the server is there; one that has gone silent is `Unreachable`. */
    private watched;
    /** The same, with the answer as it comes. */
    ask<K extends Operation>(operation: K, asked?: Asked<K>): Promise<Response>;
    /** `fetch` with the token; a refusal is thrown as a `Problem`, a redirect as `BadAnswer`, no answer at all as `Unreachable`. */
    readonly fetch: (input: RequestInfo | URL, init?: RequestInit) => Promise<Response>;
}
