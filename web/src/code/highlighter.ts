/**
 * Syntax highlighting in a worker, so that long or malicious code never blocks typing. Until the result arrives, or if none
 * does, the text is shown plain.
 */

/** A run of text and its kind (`keyword`, `string`, …), or null. */
export type Run = readonly [text: string, kind: string | null];

export interface Ask {
  id: number;
  language: string;
  code: string;
}

export interface Answer {
  id: number;
  /** Null if the language is unknown. */
  runs: Run[] | null;
}

/** Longer code is not highlighted. */
export const MAX_CHARACTERS = 60_000;
const MAX_CACHED_CHARACTERS = 2_000_000;
const TIMEOUT_MS = 3_000;

type Waiting = { ask: Ask; answer: (runs: Run[] | null) => void };

/** One worker for the page, one text at a time, with a bounded cache. */
export class Highlighter {
  private worker: Worker | null = null;
  private readonly cache = new Map<string, Run[] | null>();
  private cachedCharacters = 0;
  private waiting: Waiting[] = [];
  private busy: { waiting: Waiting; timer: ReturnType<typeof setTimeout> } | null = null;
  private next = 1;

  constructor(private readonly start: () => Worker) {}

  known(language: string, code: string): Run[] | null | undefined {
    return this.cache.get(`${language}\n${code}`);
  }

  /** Request the runs of a text. Returns a function that cancels the request. */
  ask(language: string, code: string, answer: (runs: Run[] | null) => void): () => void {
    const waiting = { ask: { id: this.next++, language, code }, answer };
    this.waiting.push(waiting);
    this.processNext();
    return () => {
      this.waiting = this.waiting.filter((one) => one !== waiting);
    };
  }

  private processNext() {
    if (this.busy) return;
    // Newest first: it is most likely on screen.
    const waiting = this.waiting.pop();
    if (!waiting) return;
    if (!this.worker) {
      this.worker = this.start();
      this.worker.onmessage = (event: MessageEvent<Answer>) => this.finish(event.data.id, event.data.runs);
      this.worker.onerror = () => this.giveUp();
    }
    this.busy = { waiting, timer: setTimeout(() => this.giveUp(), TIMEOUT_MS) };
    this.worker.postMessage(waiting.ask);
  }

  private finish(id: number, runs: Run[] | null) {
    if (!this.busy || this.busy.waiting.ask.id !== id) return;
    const { waiting, timer } = this.busy;
    clearTimeout(timer);
    this.busy = null;
    this.store(waiting.ask, runs);
    waiting.answer(runs);
    this.processNext();
  }

  /** Leave a text plain if the worker hangs or crashes on it, and start a new worker for the next. */
  private giveUp() {
    this.worker?.terminate();
    this.worker = null;
    if (this.busy) this.finish(this.busy.waiting.ask.id, null);
  }

  private store({ language, code }: Ask, runs: Run[] | null) {
    this.cache.set(`${language}\n${code}`, runs);
    this.cachedCharacters += code.length;
    for (const key of this.cache.keys()) {
      if (this.cachedCharacters <= MAX_CACHED_CHARACTERS) break;
      this.cache.delete(key);
      this.cachedCharacters -= key.length - key.indexOf('\n') - 1;
    }
  }
}
