/** Reads a server stream frame by frame. */
import { BadAnswer, Unreachable } from './problem.js';
import { readEvents } from './sse.js';
/** The server sends a comment every 15 seconds; longer silence means the connection is lost. */
const SILENCE_MS = 40_000;
/**
 * Yield the frames that an operation streams. Throws `Unreachable` when the connection is lost, or when a chat stream ends
 * before its last frame. Leaving the loop closes the connection.
 */
export async function* frames(client, operation, options = {}) {
    // One controller, referenced here: a signal from `AbortSignal.any` may be collected before it fires.
    const controller = new AbortController();
    const abort = () => controller.abort();
    const onData = () => {
        clearTimeout(timer);
        timer = setTimeout(abort, SILENCE_MS);
    };
    // An upload may take longer: its response has no time limit.
    let timer = options.body === undefined ? setTimeout(abort, SILENCE_MS) : undefined;
    options.signal?.addEventListener('abort', abort);
    if (options.signal?.aborted)
        abort();
    try {
        const response = await client.ask(operation, { ...options, signal: controller.signal, accept: 'text/event-stream' });
        if (response.status === 204)
            return;
        if (!response.headers.get('content-type')?.startsWith('text/event-stream'))
            throw new BadAnswer(`${operation} returned no event stream`);
        onData();
        options.onOpen?.();
        for await (const { id, data } of readEvents(response.body, onData)) {
            if (data === '[DONE]')
                return;
            if (id !== null)
                options.onId?.(id);
            yield parsed(data);
        }
        if (operation.includes('/chat'))
            throw new Unreachable(new Error('the stream ended early'));
    }
    catch (error) {
        // An interrupted body throws the platform's own error.
        if (options.signal?.aborted || !(error instanceof TypeError || error instanceof DOMException || error.name === 'AbortError'))
            throw error;
        throw new Unreachable(error);
    }
    finally {
        clearTimeout(timer);
        options.signal?.removeEventListener('abort', abort);
        abort();
    }
}
function parsed(data) {
    let frame;
    try {
        frame = JSON.parse(data);
    }
    catch {
        throw new BadAnswer('a stream frame is not JSON');
    }
    if (!frame || typeof frame !== 'object')
        throw new BadAnswer('a stream frame is not an object');
    return frame;
}
