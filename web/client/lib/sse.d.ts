/** Server-sent events read with fetch, since EventSource cannot send the token. */
export interface ServerEvent {
    id: string | null;
    data: string;
}
/** Yield each event. `onData` is called for everything received, comments included. */
export declare function readEvents(body: ReadableStream<Uint8Array>, onData?: () => void, maxChars?: number): AsyncGenerator<ServerEvent>;
