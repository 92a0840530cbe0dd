/** Reads a server stream frame by frame. */
import type { Operations } from '../schema.js';
import type { Asked, Client } from './client.js';
/** Operations that answer with a stream. */
export type Streaming = {
    [K in keyof Operations]: Operations[K] extends {
        frame: unknown;
    } ? K : never;
}[keyof Operations];
export type Frame<K extends Streaming> = Operations[K]['frame'];
export interface Streamed<K extends Streaming> extends Asked<K> {
    /** Called when the server has accepted the request, before the first frame. Not called for an empty response. */
    onOpen?: () => void;
    /** Called with the id of an event, before its frame is yielded. */
    onId?: (id: string) => void;
}
/**
 * Yield the frames that an operation streams. Throws `Unreachable` when the connection is lost, or when a chat stream ends
 * before its last frame. Leaving the loop closes the connection.
 */
export declare function frames<K extends Streaming>(client: Client, operation: K, options?: Streamed<K>): AsyncGenerator<Frame<K>, void>;
