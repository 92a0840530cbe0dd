/** Turns: a prompt that is sent once whatever happens, and what comes of it, across cuts and restarts of the server. */
import type { Part, PromptBody, Waiting } from '../schema.js';
import type { Client } from './client.js';
import { type Frame } from './frames.js';
import { type Chunk } from './seen.js';
export interface Patience {
    /** For how long a server that is gone is looked for, in milliseconds; a minute unless said. */
    patienceMs?: number;
    signal?: AbortSignal;
}
/**
 * A prompt that was taken. A loop over it ends when the turn does, or waits for a human; begun again, after an answer or a
 * break, it goes on with what was not seen yet. Leaving a loop leaves the run alone. One loop at a time.
 */
export declare class Turn implements AsyncIterable<Chunk> {
    private readonly client;
    readonly sessionId: string;
    readonly messageId: string;
    private readonly on;
    private readonly seen;
    constructor(client: Client, sessionId: string, messageId: string, on?: Patience);
    [Symbol.asyncIterator](): AsyncGenerator<Chunk, void>;
    /** The calls that wait for a human. */
    waiting(): Promise<Waiting[]>;
    /** Answer a request for approval; at 0 none is open any more, and the turn goes on. */
    answer(approvalId: string, decision: 'once' | 'session' | 'project' | 'deny', reason?: string): Promise<number>;
}
/** Send a prompt, a text or parts, which is durable when this resolves. Its answer may be lost: it is sent again, and runs once. */
export declare function start(client: Client, sessionId: string, prompt: string | Part[], options?: Omit<PromptBody, 'text' | 'parts' | 'on_busy'> & Patience): Promise<Turn>;
/** What happens on the server. Each connection begins with `hello`: what happened before it is to be looked up. */
export declare function events(client: Client, on?: Patience): AsyncGenerator<Frame<'GET /api/events'>, void>;
