/**
 * What a client has seen of a message: its place in a stream, which holds across connections. A server shows a message from
 * its first part whenever somebody joins, deltas joined and under other ids; what was seen of it is left out, and the rest
 * goes on under the ids that were seen first. The same as `clew.transcript.seen`; one test holds both.
 */
export interface Chunk {
    type: string;
    [key: string]: unknown;
}
/** Takes the chunks of one connection after the other, and gives each of them out once. A turn may have several messages. */
export declare class Seen {
    private readonly messages;
    private now;
    turnId: string | null;
    /** The last thing that came may not be the end: a human's word, or a message of its own, may follow. */
    goesOn: boolean;
    get began(): boolean;
    /** The message that came last has a call without a result: where nothing runs, it waits for a human. */
    get asks(): boolean;
    /** What comes now is another connection's, from the first part. */
    joinAgain(): void;
    /** What of a chunk was not seen before. */
    take(chunk: Chunk): Chunk[];
}
