/**
 * Tracks what a client has received of a message, across connections. On each new connection the server sends a message
 * from its first part, with deltas merged and under other ids; what the client already has is dropped, and the rest
 * continues under the ids that came first. The same as `clew.transcript.seen`; one test covers both.
 */
export interface Chunk {
    type: string;
    [key: string]: unknown;
}
/** Accepts the chunks of successive connections and returns each once. A turn may have several messages. */
export declare class Seen {
    private readonly messages;
    private now;
    turnId: string | null;
    /** The last chunk may not be the end: an approval or another message may follow. */
    goesOn: boolean;
    get began(): boolean;
    /** Whether the newest message has a call without a result; if nothing runs, it is waiting for a human. */
    get asks(): boolean;
    /** Start a new connection, which sends messages from their first part. */
    joinAgain(): void;
    /** Return the part of a chunk that has not been seen. */
    take(chunk: Chunk): Chunk[];
}
