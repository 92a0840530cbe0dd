/**
 * Tracks what a client has received of a message, across connections. On each new connection the server sends a message
 * from its first part, with deltas merged and under other ids; what the client already has is dropped, and the rest
 * continues under the ids that came first. The same as `clew.transcript.seen`; one test covers both.
 */
/** Finish reasons after which the turn may continue, possibly in another message. */
const CONTINUES = ['tool-calls', 'error'];
const ENDINGS = new Set(['finish', 'abort', 'error']);
const TERMINAL_CHUNKS = ['finish', 'abort'];
const CALL_FIELDS = ['providerExecuted', 'toolMetadata'];
const CALL_ENDS = new Set(['tool-output-error', 'tool-output-denied', 'tool-input-error']);
/** The position within one connection. */
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
/** Accepts the chunks of successive connections and returns each once. A turn may have several messages. */
export class Seen {
    messages = new Map();
    now = new Message();
    turnId = null;
    /** The last chunk may not be the end: an approval or another message may follow. */
    goesOn = false;
    get began() {
        return this.messages.size > 0;
    }
    /** Whether the newest message has a call without a result; if nothing runs, it is waiting for a human. */
    get asks() {
        return this.now.asks;
    }
    /** Start a new connection, which sends messages from their first part. */
    joinAgain() {
        for (const message of this.messages.values())
            message.joinAgain();
    }
    /** Return the part of a chunk that has not been seen. */
    take(chunk) {
        if (chunk.type === 'start') {
            this.now = this.messages.get(chunk.messageId) ?? new Message();
            this.messages.set(chunk.messageId, this.now);
            const { turn_id: turnId } = (chunk.messageMetadata ?? {});
            this.turnId = turnId ?? this.turnId;
        }
        this.goesOn = chunk.type === 'finish' && CONTINUES.includes(chunk.finishReason);
        return this.now.take(chunk);
    }
}
/** The received state of one message. */
class Message {
    joinedAgain = false;
    hasStarted = false;
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
    /** After `finish` or `abort` no second end is accepted; after `error` alone one may still follow. */
    get hasEnded() {
        return TERMINAL_CHUNKS.some((kind) => this.endings.has(kind));
    }
    joinAgain() {
        this.joinedAgain = true;
        this.pass = new Pass();
    }
    take(chunk) {
        const fresh = this.unseen(chunk);
        if (ENDINGS.has(chunk.type))
            this.endings.add(chunk.type);
        // Metadata sent after the end does not reopen the message.
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
        const hadStarted = this.hasStarted;
        this.hasStarted = true;
        const changed = this.merge(chunk);
        if (!hadStarted)
            return [chunk];
        return Object.keys(changed).length ? [{ type: 'message-metadata', messageMetadata: changed }] : [];
    }
    /** Merge metadata and return the changed entries. */
    merge(chunk) {
        const entries = Object.entries((chunk.messageMetadata ?? {}));
        const changed = entries.filter(([key, value]) => this.metadata.get(key) !== JSON.stringify(value));
        for (const [key, value] of changed)
            this.metadata.set(key, JSON.stringify(value));
        return Object.fromEntries(changed);
    }
    text(chunk, kind, what) {
        const seen = this.texts[kind];
        const sentId = String(chunk.id);
        const key = `${kind} ${sentId}`;
        let index;
        let isNew = false;
        if (what === 'start') {
            index = this.pass.count(kind) - 1;
            this.pass.texts.set(key, index);
            isNew = index >= seen.length;
            if (isNew) {
                let id = sentId;
                while (this.joinedAgain && seen.some((one) => one.open && one.id === id))
                    id += '+';
                seen.push({ id, length: 0, open: true, metadata: undefined });
            }
        }
        else {
            const found = this.pass.texts.get(key);
            if (found === undefined)
                return [chunk];
            index = found;
            isNew = what === 'end' && seen[index].open;
        }
        const text = seen[index];
        const fresh = { ...chunk, id: text.id };
        if (what === 'end')
            text.open = false;
        if (what === 'delta') {
            const delta = String(chunk.delta);
            const rest = this.pass.grow(`${kind} ${index}`, delta.length) - text.length;
            isNew = rest > 0;
            if (isNew) {
                text.length += rest;
                fresh.delta = delta.slice(-rest);
            }
        }
        const metadata = chunk.providerMetadata === undefined ? undefined : JSON.stringify(chunk.providerMetadata);
        const sameMetadata = metadata === undefined || metadata === text.metadata;
        text.metadata = metadata ?? text.metadata;
        if (isNew || sameMetadata || !text.open)
            return isNew ? [fresh] : [];
        // New metadata for a text that has been seen already.
        return [{ type: `${kind}-delta`, id: text.id, delta: '', providerMetadata: chunk.providerMetadata }];
    }
    tool(chunk, kind) {
        const id = String(chunk.toolCallId);
        const known = this.calls.get(id);
        const step = this.pass.counts.get('step') ?? 0;
        const call = known ?? { step, written: 0, started: false, whole: false, ended: false, output: undefined, about: {} };
        this.calls.set(id, call);
        for (const key of CALL_FIELDS)
            if (key in chunk)
                call.about[key] = chunk[key];
        if (kind === 'tool-input-start')
            return known ? [] : [chunk];
        if (kind === 'tool-input-delta') {
            const delta = String(chunk.inputTextDelta);
            const rest = this.pass.grow(`call ${id}`, delta.length) - call.written;
            // An empty first delta is passed on: it tells "empty" from "not started".
            const hadStarted = call.started;
            call.started = true;
            if (rest <= 0 && hadStarted)
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
            // For an input that was cut off the server sends all there is, after its step ended.
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
            // Texts do not continue across steps.
            for (const text of [...this.texts.text, ...this.texts.reasoning])
                text.open = false;
            // An interrupted step ended with its message.
            return this.hasEnded ? [] : [chunk];
        }
        const step = this.pass.count('step');
        if (step <= (this.counts.get('step') ?? 0))
            return [];
        this.counts.set('step', step);
        // If the server omitted the end of the previous step, do not send it later.
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
