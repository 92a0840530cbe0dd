/** The one way to the server: typed by the OpenAPI document, every refusal a `Problem`. */
import { readBody } from './body.js';
import { BadAnswer, Problem, problemOf, Unreachable } from './problem.js';
/** Operations whose answer is bytes, whatever kind of bytes those are. */
const BYTES = ['GET /api/sessions/{id}/export', 'GET /api/blobs/{sha256}', 'GET /assets/{file}'];
const TEXTS = ['GET /', 'GET /metrics'];
/** A refusal is a few lines. */
const LARGEST_REFUSAL = 1024 * 1024;
/** So long a call may be without an answer before the server is asked whether it is there at all, and so long that may take. */
const SILENCE_MS = 10_000;
/** `base` is where the server's page is, without a slash at its end; a page of the server's own needs none. */
export class Client {
    token;
    base;
    reach;
    silenceMs;
    /** Called when the server does not know the token. */
    onUnauthorized = () => undefined;
    constructor(token, base = '', reach = (...args) => fetch(...args), silenceMs = SILENCE_MS) {
        this.token = token;
        this.base = base;
        this.reach = reach;
        this.silenceMs = silenceMs;
    }
    /** An operation by its route, with what it takes; what it answers, or a `Problem`. */
    async call(operation, asked = {}) {
        return this.watched(asked, async (signal) => {
            const response = await this.ask(operation, { ...asked, signal });
            if (response.status === 204)
                return undefined;
            const bytes = BYTES.includes(operation);
            // Whoever asks to be logged in to answers 200 with a page of its own.
            const page = response.headers.get('content-type')?.startsWith('text/html') ?? false;
            if (page && !bytes && operation !== 'GET /')
                throw new BadAnswer('it answers with a page');
            const body = await readBody(response);
            if (bytes)
                return body;
            const text = await body.text();
            if (TEXTS.includes(operation))
                return text;
            try {
                return JSON.parse(text);
            }
            catch {
                throw new BadAnswer('its answer is no JSON');
            }
        });
    }
    /** Work that takes long is waited for as long as the server is there; one that has gone silent is `Unreachable`. */
    async watched(asked, work) {
        // One signal for all of it, held here: one that is made of others may be collected before it fires.
        const giving = new AbortController();
        const give = () => giving.abort();
        const { signal } = giving;
        const look = async () => {
            timer = setTimeout(give, this.silenceMs);
            try {
                const response = await this.reach(`${this.base}/api/health`, { signal, redirect: 'manual', cache: 'no-store', credentials: 'omit' });
                // Some say that an answer comes, and nothing more.
                await readBody(response, LARGEST_REFUSAL);
                clearTimeout(timer);
                if (!signal.aborted)
                    timer = setTimeout(() => void look(), this.silenceMs);
            }
            catch {
                give();
            }
        };
        let timer = setTimeout(() => void look(), this.silenceMs);
        const lasts = asked.timeoutMs === undefined ? undefined : setTimeout(give, asked.timeoutMs);
        asked.signal?.addEventListener('abort', give);
        if (asked.signal?.aborted)
            give();
        try {
            return await work(signal);
        }
        catch (error) {
            // What a body breaks off with is the platform's own error.
            if (asked.signal?.aborted || !(signal.aborted || error instanceof TypeError))
                throw error;
            throw new Unreachable(error);
        }
        finally {
            clearTimeout(timer);
            clearTimeout(lasts);
            asked.signal?.removeEventListener('abort', give);
            give();
        }
    }
    /** The same, with the answer as it comes. */
    async ask(operation, asked = {}) {
        const [method, template] = operation.split(' ');
        const values = (asked.path ?? {});
        const path = template.replace(/\{(\w+)\}/g, (_, name) => segment(values[name] ?? ''));
        const query = new URLSearchParams();
        for (const [name, value] of Object.entries(asked.query ?? {})) {
            if (value !== undefined && value !== null)
                query.set(name, String(value));
        }
        const headers = asked.body === undefined ? {} : { 'content-type': 'application/json' };
        if (asked.accept)
            headers.accept = asked.accept;
        return this.fetch(path + (query.size ? `?${query}` : ''), {
            method,
            body: asked.body === undefined ? undefined : JSON.stringify(asked.body),
            headers,
            signal: asked.signal,
        });
    }
    /** `fetch` with the token; a refusal is thrown as a `Problem`, a redirect as `BadAnswer`, no answer at all as `Unreachable`. */
    fetch = async (input, init = {}) => {
        const headers = new Headers(init.headers);
        // Without a token the host knows who asks, by a cookie of its own.
        if (this.token)
            headers.set('authorization', `Bearer ${this.token}`);
        let response;
        try {
            response = await this.reach(typeof input === 'string' ? this.base + input : input, {
                ...init,
                headers,
                credentials: this.token ? 'omit' : 'same-origin',
                cache: 'no-store',
                // Neither the token nor what is said goes anywhere else.
                redirect: 'manual',
            });
        }
        catch (error) {
            if (error instanceof DOMException && error.name === 'AbortError')
                throw error;
            throw new Unreachable(error);
        }
        if (response.ok)
            return response;
        if (response.type === 'opaqueredirect' || (response.status >= 300 && response.status < 400))
            throw new BadAnswer('it says to look elsewhere');
        // What is no word of clew's says as much as its status does.
        const said = await readBody(response, LARGEST_REFUSAL).then((body) => body.text(), () => '');
        const problem = problemOf(response, said);
        if (problem.status === 401)
            this.onUnauthorized();
        throw problem;
    };
}
/** An id as a part of a path. One that would lead to another path was not given out by clew. */
function segment(id) {
    if (['', '.', '..'].includes(id))
        throw new Problem(422, 'invalid_id', `'${id}' cannot be an id`);
    return encodeURIComponent(id);
}
