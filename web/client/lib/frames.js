/** A stream of the server's, frame by frame, for as long as it lasts. */
import { BadAnswer, Unreachable } from './problem.js';
import { readEvents } from './sse.js';
/** The server sends a comment every 15 seconds; silence for longer means that nobody is there. */
const SILENCE_MS = 40_000;
/**
 * What an operation streams. A connection that is lost is `Unreachable`; a stream of chunks that ends before its last frame
 * has been lost, too. Leaving the loop leaves the connection.
 */
export async function* frames(client, operation, asked = {}) {
    // One signal for both, held here: one that is made of others may be collected before it fires.
    const silence = new AbortController();
    const leave = () => silence.abort();
    const heard = () => {
        clearTimeout(timer);
        timer = setTimeout(leave, SILENCE_MS);
    };
    let timer = setTimeout(leave, SILENCE_MS);
    asked.signal?.addEventListener('abort', leave);
    if (asked.signal?.aborted)
        leave();
    try {
        const response = await client.ask(operation, { ...asked, signal: silence.signal, accept: 'text/event-stream' });
        if (response.status === 204)
            return;
        if (!response.headers.get('content-type')?.startsWith('text/event-stream'))
            throw new BadAnswer(`there is no stream at ${operation}`);
        for await (const data of readEvents(response.body, heard)) {
            if (data === '[DONE]')
                return;
            yield parsed(data);
        }
        if (operation.includes('/chat'))
            throw new Unreachable(new Error('the stream broke off'));
    }
    catch (error) {
        // What a body breaks off with is the platform's own error.
        if (asked.signal?.aborted || !(error instanceof TypeError || error instanceof DOMException || error.name === 'AbortError'))
            throw error;
        throw new Unreachable(error);
    }
    finally {
        clearTimeout(timer);
        asked.signal?.removeEventListener('abort', leave);
        leave();
    }
}
function parsed(data) {
    let frame;
    try {
        frame = JSON.parse(data);
    }
    catch {
        throw new BadAnswer('a frame of its stream is no JSON');
    }
    if (!frame || typeof frame !== 'object')
        throw new BadAnswer('a frame of its stream is no object');
    return frame;
}
