/**
 * Code in colours. They are worked out in a worker, so that neither a long text nor one that was made to take long is
 * felt while typing; until they are there, and where they never come, the text stands as it is.
 */

/** A run of text and what it is (`keyword`, `string`, …); no kind where it is nothing in particular. */
export type Run = readonly [text: string, kind: string | null];

export interface Ask {
  id: number;
  language: string;
  code: string;
}

export interface Answer {
  id: number;
  /** Null where the language is not known. */
  runs: Run[] | null;
}

/** Beyond so many characters colours help nobody find their way. */
export const MOST_CHARACTERS = 60_000;
const MOST_KEPT = 2_000_000;
const LONGEST_WAIT_MS = 3_000;

type Waiting = { ask: Ask; answer: (runs: Run[] | null) => void };

/** One worker for the page, one text at a time, what it found kept up to a size. */
export class Colours {
  private worker: Worker | null = null;
  private readonly kept = new Map<string, Run[] | null>();
  private keptCharacters = 0;
  private waiting: Waiting[] = [];
  private busy: { waiting: Waiting; timer: ReturnType<typeof setTimeout> } | null = null;
  private next = 1;

  constructor(private readonly start: () => Worker) {}

  known(language: string, code: string): Run[] | null | undefined {
    return this.kept.get(`${language}\n${code}`);
  }

  /** The runs of a text. A function that takes the question back is given. */
  ask(language: string, code: string, answer: (runs: Run[] | null) => void): () => void {
    const waiting = { ask: { id: this.next++, language, code }, answer };
    this.waiting.push(waiting);
    this.goOn();
    return () => {
      this.waiting = this.waiting.filter((one) => one !== waiting);
    };
  }

  private goOn() {
    if (this.busy) return;
    // The newest is what is being looked at.
    const waiting = this.waiting.pop();
    if (!waiting) return;
    if (!this.worker) {
      this.worker = this.start();
      this.worker.onmessage = (event: MessageEvent<Answer>) => this.answered(event.data.id, event.data.runs);
      this.worker.onerror = () => this.giveUp();
    }
    this.busy = { waiting, timer: setTimeout(() => this.giveUp(), LONGEST_WAIT_MS) };
    this.worker.postMessage(waiting.ask);
  }

  private answered(id: number, runs: Run[] | null) {
    if (!this.busy || this.busy.waiting.ask.id !== id) return;
    const { waiting, timer } = this.busy;
    clearTimeout(timer);
    this.busy = null;
    this.keep(waiting.ask, runs);
    waiting.answer(runs);
    this.goOn();
  }

  /** A text on which the worker hangs or dies stays plain, and the next one gets a new worker. */
  private giveUp() {
    this.worker?.terminate();
    this.worker = null;
    if (this.busy) this.answered(this.busy.waiting.ask.id, null);
  }

  private keep({ language, code }: Ask, runs: Run[] | null) {
    this.kept.set(`${language}\n${code}`, runs);
    this.keptCharacters += code.length;
    for (const key of this.kept.keys()) {
      if (this.keptCharacters <= MOST_KEPT) break;
      this.kept.delete(key);
      this.keptCharacters -= key.length - key.indexOf('\n') - 1;
    }
  }
}
