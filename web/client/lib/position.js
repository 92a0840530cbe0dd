/** A client's position in the stream of a turn, kept over several connections. */
/** The type of the chunk before a message that begins again: drop what you have of it, and of later ones of its turn. */
export const RESET = 'data-reset';
export class Position {
    /** The id of the last event received. The next connection continues after it. */
    cursor = null;
    begun = null;
    /** Return a chunk as a reader gets it: a message that begins a second time is reset first. */
    take(chunk) {
        if (chunk.type === RESET)
            this.cursor = this.begun = null;
        if (chunk.type !== 'start')
            return [chunk];
        const again = this.begun === (chunk.messageId ?? '');
        this.begun = chunk.messageId ?? '';
        return again ? [{ type: RESET, data: { messageId: chunk.messageId }, transient: true }, chunk] : [chunk];
    }
}
