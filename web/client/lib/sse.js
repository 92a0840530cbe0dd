/** Server-sent events read with fetch, since EventSource cannot send the token. */
import { BadAnswer } from './problem.js';
/** Far above what one event of clew's holds; whoever sends more does not stop. */
const LARGEST = 64 * 1024 * 1024;
/** The data of each event; `heard` is told of whatever comes, comments too. */
export async function* readEvents(body, heard = () => undefined, largest = LARGEST) {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    let data = [];
    // Of a line that has not ended: put together once, however many pieces it comes in.
    let begun = [];
    let size = 0;
    try {
        for (;;) {
            const { done, value } = await reader.read();
            if (done)
                return;
            heard();
            const lines = decoder.decode(value, { stream: true }).split('\n');
            const rest = lines.pop() ?? '';
            for (const ending of lines) {
                const line = [...begun, ending].join('').replace(/\r$/, '');
                begun = [];
                size += ending.length;
                if (line !== '') {
                    if (line.startsWith('data:'))
                        data.push(line.slice(line.startsWith('data: ') ? 6 : 5));
                    continue;
                }
                if (data.length)
                    yield data.join('\n');
                data = [];
                size = 0;
            }
            if (rest)
                begun.push(rest);
            size += rest.length;
            if (size > largest)
                throw new BadAnswer('an event of its stream has no end');
        }
    }
    finally {
        // The reader may have ended by an error, which is already on its way to the caller.
        reader.cancel().catch(() => undefined);
    }
}
