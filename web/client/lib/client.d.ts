/** The one way to the server: typed by the OpenAPI document, every refusal a `Problem`. */
import type { Operations } from '../schema.js';
export type Operation = keyof Operations;
export type Answer<K extends Operation> = Operations[K]['answer'];
export interface Asked<K extends Operation> {
    path?: Operations[K]['path'];
    query?: Operations[K]['query'];
    body?: Operations[K]['body'];
    signal?: AbortSignal;
    accept?: string;
}
/** `base` is where the server's page is, without a slash at its end; a page of the server's own needs none. */
export declare class Client {
    readonly token: string;
    readonly base: string;
    private readonly reach;
    /** Called when the server does not know the token. */
    onUnauthorized: () => void;
    constructor(token: string, base?: string, reach?: typeof fetch);
    /** An operation by its route, with what it takes; what it answers, or a `Problem`. */
    call<K extends Operation>(operation: K, asked?: Asked<K>): Promise<Answer<K>>;
    /** The same, with the answer as it comes. */
    ask<K extends Operation>(operation: K, asked?: Asked<K>): Promise<Response>;
    /** `fetch` with the token; a refusal is thrown as a `Problem`, a redirect as `BadAnswer`, no answer at all as `Unreachable`. */
    readonly fetch: (input: RequestInfo | URL, init?: RequestInit) => Promise<Response>;
}
