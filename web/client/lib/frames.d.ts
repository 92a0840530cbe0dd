/** A stream of the server's, frame by frame, for as long as it lasts. */
import type { Operations } from '../schema.js';
import type { Asked, Client } from './client.js';
/** Operations that answer with a stream. */
export type Streaming = {
    [K in keyof Operations]: Operations[K] extends {
        frame: unknown;
    } ? K : never;
}[keyof Operations];
export type Frame<K extends Streaming> = Operations[K]['frame'];
/**
 * What an operation streams. A connection that is lost is `Unreachable`; a stream of chunks that ends before its last frame
 * has been lost, too. Leaving the loop leaves the connection.
 */
export declare function frames<K extends Streaming>(client: Client, operation: K, asked?: Asked<K>): AsyncGenerator<Frame<K>, void>;
