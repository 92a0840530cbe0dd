/** A client's position in the stream of a turn, kept over several connections. */
export interface Chunk {
    type: string;
    [key: string]: unknown;
}
/** The type of the chunk before a message that begins again: drop what you have of it, and of later ones of its turn. */
export declare const RESET = "data-reset";
export declare class Position {
    /** The id of the last event received. The next connection continues after it. */
    cursor: string | null;
    private begun;
    /** Return a chunk as a reader gets it: a message that begins a second time is reset first. */
    take(chunk: Chunk): Chunk[];
}
