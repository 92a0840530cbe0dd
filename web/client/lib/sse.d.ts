/** Server-sent events read with fetch, since EventSource cannot send the token. */
/** The data of each event; `heard` is told of whatever comes, comments too. */
export declare function readEvents(body: ReadableStream<Uint8Array>, heard?: () => void, largest?: number): AsyncGenerator<string>;
