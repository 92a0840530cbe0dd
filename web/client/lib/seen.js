/**
 * What a client has seen of a message: its place in a stream, which holds across connections. A server shows a message from
 * its first part whenever somebody joins, deltas joined and under other ids; what was seen of it is left out, and the rest
 * goes on under the ids that were seen first. The same as `clew.transcript.seen`; one test holds both.
 */
/** How a message ends that its turn may go on from: after a cut by itself, where nobody is there to say so. */
const GOES_ON = ['tool-calls', 'error'];
const ENDINGS = new Set(['finish', 'abort', 'error']);
const LAST = ['finish', 'abort'];
const OF_CALL = ['providerExecuted', 'toolMetadata'];
const CALL_ENDS = new Set(['tool-output-error', 'tool-output-denied', 'tool-input-error']);
/** How far one connection is. */
class Pass {
    counts = new Map();
    texts = new Map();
    lengths = new Map();
    count(kind) {
        const now = (this.counts.get(kind) ?? 0) + 1;
        this.counts.set(kind, now);
        return now;
    }
    grow(which, by) {
        const now = (this.lengths.get(which) ?? 0) + by;
        this.lengths.set(which, now);
        return now;
    }
}
/** Takes the chunks of one connection after the other, and gives each of them out once. A turn may have several messages. */
export class Seen {
    messages = new Map();
    now = new Message();
    turnId = null;
    /** The last thing that came may not be the end: a human's word, or a message of its own, may follow. */
    goesOn = false;
    get began() {
        return this.messages.size > 0;
    }
    /** The message that came last has a call without a result: where nothing runs, it waits for a human. */
    get asks() {
        return this.now.asks;
    }
    /** What comes now is another connection's, from the first part. */
    joinAgain() {
        for (const message of this.messages.values())
            message.joinAgain();
    }
    /** What of a chunk was not seen before. */
    take(chunk) {
        if (chunk.type === 'start') {
            this.now = this.messages.get(chunk.messageId) ?? new Message();
            this.messages.set(chunk.messageId, this.now);
            const { turn_id: turnId } = (chunk.messageMetadata ?? {});
            this.turnId = turnId ?? this.turnId;
        }
        this.goesOn = chunk.type === 'finish' && GOES_ON.includes(chunk.finishReason);
        return this.now.take(chunk);
    }
}
/** What was seen of one message. */
class Message {
    joinedAgain = false;
    isBegun = false;
    metadata = new Map();
    texts = { text: [], reasoning: [] };
    calls = new Map();
    approvals = new Set();
    counts = new Map();
    values = new Map();
    finished = new Set();
    endings = new Set();
    pass = new Pass();
    get asks() {
        return [...this.calls.values()].some((call) => !call.ended);
    }
    /** Nothing ends it a second time. Of an error alone the end is still to come. */
    get hasEnded() {
        return LAST.some((kind) => this.endings.has(kind));
    }
    joinAgain() {
        this.joinedAgain = true;
        this.pass = new Pass();
    }
    take(chunk) {
        const fresh = this.unseen(chunk);
        if (ENDINGS.has(chunk.type))
            this.endings.add(chunk.type);
        // What is said of a message after its end does not begin it anew.
        else if (fresh.some((one) => one.type !== 'message-metadata'))
            this.endings.clear();
        return this.joinedAgain ? fresh : [chunk];
    }
    unseen(chunk) {
        const kind = chunk.type;
        if (kind === 'start')
            return this.start(chunk);
        if (ENDINGS.has(kind))
            return this.endings.has(kind) || this.hasEnded ? [] : [chunk];
        if (kind === 'message-metadata')
            return Object.keys(this.merge(chunk)).length ? [chunk] : [];
        const text = /^(text|reasoning)-(start|delta|end)$/.exec(kind);
        if (text)
            return this.text(chunk, text[1], text[2]);
        if (kind.startsWith('tool-'))
            return this.tool(chunk, kind);
        if (kind === 'start-step' || kind === 'finish-step')
            return this.step(chunk, kind);
        return this.single(chunk, kind);
    }
    start(chunk) {
        const wasBegun = this.isBegun;
        this.isBegun = true;
        const changed = this.merge(chunk);
        if (!wasBegun)
            return [chunk];
        return Object.keys(changed).length ? [{ type: 'message-metadata', messageMetadata: changed }] : [];
    }
    /** What of a message's metadata is new. */
    merge(chunk) {
        const told = Object.entries((chunk.messageMetadata ?? {}));
        const changed = told.filter(([key, value]) => this.metadata.get(key) !== JSON.stringify(value));
        for (const [key, value] of changed)
            this.metadata.set(key, JSON.stringify(value));
        return Object.fromEntries(changed);
    }
    text(chunk, kind, what) {
        const seen = this.texts[kind];
        const given = String(chunk.id);
        const key = `${kind} ${given}`;
        let place;
        let isNew = false;
        if (what === 'start') {
            place = this.pass.count(kind) - 1;
            this.pass.texts.set(key, place);
            isNew = place >= seen.length;
            if (isNew) {
                let id = given;
                while (this.joinedAgain && seen.some((one) => one.open && one.id === id))
                    id += '+';
                seen.push({ id, length: 0, open: true, metadata: undefined });
            }
        }
        else {
            const found = this.pass.texts.get(key);
            if (found === undefined)
                return [chunk];
            place = found;
            isNew = what === 'end' && seen[place].open;
        }
        const text = seen[place];
        const told = { ...chunk, id: text.id };
        if (what === 'end')
            text.open = false;
        if (what === 'delta') {
            const delta = String(chunk.delta);
            const rest = this.pass.grow(`${kind} ${place}`, delta.length) - text.length;
            isNew = rest > 0;
            if (isNew) {
                text.length += rest;
                told.delta = delta.slice(-rest);
            }
        }
        const metadata = chunk.providerMetadata === undefined ? undefined : JSON.stringify(chunk.providerMetadata);
        const isTold = metadata === undefined || metadata === text.metadata;
        text.metadata = metadata ?? text.metadata;
        if (isNew || isTold || !text.open)
            return isNew ? [told] : [];
        // What is said of a text with something that had been seen.
        return [{ type: `${kind}-delta`, id: text.id, delta: '', providerMetadata: chunk.providerMetadata }];
    }
    tool(chunk, kind) {
        const id = String(chunk.toolCallId);
        const known = this.calls.get(id);
        const step = this.pass.counts.get('step') ?? 0;
        const call = known ?? { step, written: 0, begun: false, whole: false, ended: false, output: undefined, about: {} };
        this.calls.set(id, call);
        for (const key of OF_CALL)
            if (key in chunk)
                call.about[key] = chunk[key];
        if (kind === 'tool-input-start')
            return known ? [] : [chunk];
        if (kind === 'tool-input-delta') {
            const delta = String(chunk.inputTextDelta);
            const rest = this.pass.grow(`call ${id}`, delta.length) - call.written;
            // That nothing was written is something else than that nobody wrote yet.
            const wasBegun = call.begun;
            call.begun = true;
            if (rest <= 0 && wasBegun)
                return [];
            call.written += rest;
            return [{ ...chunk, inputTextDelta: rest ? delta.slice(-rest) : '' }];
        }
        if (kind === 'tool-approval-request') {
            const isKnown = this.approvals.has(chunk.approvalId);
            this.approvals.add(chunk.approvalId);
            return isKnown ? [] : [chunk];
        }
        if (call.ended)
            return [];
        if (kind === 'tool-input-available') {
            // Of one that was cut off while it was written a server says all there is; its step is over.
            const wasWhole = call.whole || this.finished.has(call.step);
            call.whole = true;
            return wasWhole ? [] : [chunk];
        }
        if (CALL_ENDS.has(kind) || !chunk.preliminary) {
            call.ended = true;
            if (kind === 'tool-output-denied')
                return [chunk];
            const type = kind === 'tool-input-error' && this.finished.has(call.step) ? 'tool-output-error' : kind;
            return [{ ...chunk, type, ...call.about }];
        }
        const before = call.output;
        call.output = JSON.stringify([chunk.output, chunk.providerMetadata]);
        return before === call.output ? [] : [{ ...chunk, ...call.about }];
    }
    step(chunk, kind) {
        if (kind === 'finish-step') {
            const step = this.pass.counts.get('step') ?? 0;
            if (this.finished.has(step))
                return [];
            this.finished.add(step);
            // Nothing that was open in a step goes on after it.
            for (const text of [...this.texts.text, ...this.texts.reasoning])
                text.open = false;
            // A step that was cut ended with its message.
            return this.hasEnded ? [] : [chunk];
        }
        const step = this.pass.count('step');
        if (step <= (this.counts.get('step') ?? 0))
            return [];
        this.counts.set('step', step);
        // Where a server left out that the step before it ended, it is not told afterwards.
        this.finished.add(step - 1);
        return [chunk];
    }
    single(chunk, kind) {
        if (chunk.transient)
            return [chunk];
        if (typeof chunk.id === 'string') {
            const key = JSON.stringify([kind, chunk.id]);
            const value = JSON.stringify(chunk.data ?? null);
            if (this.values.get(key) === value)
                return [];
            this.values.set(key, value);
            return [chunk];
        }
        const number = this.pass.count(kind);
        if (number <= (this.counts.get(kind) ?? 0))
            return [];
        this.counts.set(kind, number);
        return [chunk];
    }
}
