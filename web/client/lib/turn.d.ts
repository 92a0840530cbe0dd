/** Turns: a prompt that runs exactly once, and its stream, across lost connections and server restarts. */
import type { Part, PromptBody, Waiting } from '../schema.js';
import type { Client } from './client.js';
import { type Frame } from './frames.js';
import { type Chunk } from './position.js';
export interface Patience {
    /** Time to keep retrying an unreachable server, in milliseconds; a minute by default. */
    patienceMs?: number;
    signal?: AbortSignal;
}
/**
 * A prompt that the server accepted. A loop over it ends when the turn does, or waits for a human; a new loop, after an
 * approval or a break, continues with the next chunk. A `data-reset` chunk says that a message follows again from its first
 * part: drop what you have of it. Leaving a loop does not stop the turn. One loop at a time.
 */
export declare class Turn implements AsyncIterable<Chunk> {
    private readonly client;
    readonly sessionId: string;
    readonly messageId: string;
    private readonly on;
    private readonly position;
    constructor(client: Client, sessionId: string, messageId: string, on?: Patience);
    [Symbol.asyncIterator](): AsyncGenerator<Chunk, void>;
    /** Return the calls that are waiting for a human. */
    waiting(): Promise<Waiting[]>;
    /** Answer an approval request and return how many are left; at 0 the turn continues. */
    answer(approvalId: string, decision: 'once' | 'session' | 'project' | 'deny', reason?: string): Promise<number>;
}
/** Send a prompt, a text or parts; it is durable when this resolves. If the response is lost the prompt is resent, and still runs once. */
export declare function start(client: Client, sessionId: string, prompt: string | Part[], options?: Omit<PromptBody, 'text' | 'parts' | 'on_busy'> & Patience): Promise<Turn>;
/** Yield the server's events. Each connection begins with `hello`; fetch the current state then, since earlier events are not sent again. */
export declare function events(client: Client, on?: Patience): AsyncGenerator<Frame<'GET /api/events'>, void>;
