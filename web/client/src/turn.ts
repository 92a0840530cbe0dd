/** Turns: a prompt that is sent once whatever happens, and what comes of it, across cuts and restarts of the server. */

import type { Part, PromptBody, Waiting } from '../schema.js';
import type { Client } from './client.js';
import { type Frame, frames } from './frames.js';
import { Problem, Unreachable } from './problem.js';
import { type Chunk, Seen } from './seen.js';

export interface Patience {
  /** For how long a server that is gone is looked for, in milliseconds; a minute unless said. */
  patienceMs?: number;
  signal?: AbortSignal;
}

const WAITS_MS = [100, 200, 500, 1000, 2000];
const AT_WORK = ['running', 'retrying', 'compacting'];

/** A server that is gone, being started again, or too busy for a moment. */
function isPassing(error: unknown): boolean {
  return error instanceof Unreachable || (error instanceof Problem && [502, 503, 504].includes(error.status));
}

class Waits {
  private failures = 0;
  private since: number | null = null;

  constructor(private readonly on: Patience) {}

  reset(): void {
    this.failures = 0;
    this.since = null;
  }

  /** Resolves when it is time to try again; throws the error where that would not help, or not any more. */
  async after(error: unknown): Promise<void> {
    this.since ??= Date.now();
    if (this.on.signal?.aborted || !isPassing(error) || Date.now() - this.since >= (this.on.patienceMs ?? 60_000)) throw error;
    await this.between();
  }

  /** Resolves when it is time for the next look, or somebody wants no more. */
  async between(): Promise<void> {
    const ms = WAITS_MS[Math.min(this.failures++, WAITS_MS.length - 1)]!;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(done, ms);
      const signal = this.on.signal;
      function done() {
        clearTimeout(timer);
        signal?.removeEventListener('abort', done);
        resolve();
      }
      signal?.addEventListener('abort', done);
    });
  }
}

/**
 * A prompt that was taken. A loop over it ends when the turn does, or waits for a human; begun again, after an answer or a
 * break, it goes on with what was not seen yet. Leaving a loop leaves the run alone. One loop at a time.
 */
export class Turn implements AsyncIterable<Chunk> {
  private readonly seen = new Seen();

  constructor(
    private readonly client: Client,
    readonly sessionId: string,
    readonly messageId: string,
    private readonly on: Patience = {},
  ) {}

  async *[Symbol.asyncIterator](): AsyncGenerator<Chunk, void> {
    const waits = new Waits(this.on);
    for (;;) {
      if (this.seen.began) this.seen.joinAgain();
      let isNews = false;
      const asked = { path: { id: this.sessionId }, query: { message_id: this.messageId }, signal: this.on.signal };
      try {
        for await (const chunk of frames(this.client, 'GET /api/chat/{id}/stream', asked)) {
          waits.reset();
          const unseen = this.seen.take(chunk);
          isNews ||= unseen.length > 0;
          yield* unseen;
        }
        if (!this.seen.goesOn || !this.seen.turnId) return;
        // A turn may go on in a message of its own: after a reminder, or after a cut that nobody saw. That may be over by
        // now, or wait for somebody: what came of it is there when it is looked for once more.
        const { status } = await this.client.call('GET /api/turns/{id}', { path: { id: this.seen.turnId }, signal: this.on.signal });
        if (AT_WORK.includes(status)) await waits.between();
        else if (this.seen.asks || !isNews) return;
      } catch (error) {
        await waits.after(error);
      }
    }
  }

  /** The calls that wait for a human. */
  async waiting(): Promise<Waiting[]> {
    return (await this.client.call('GET /api/sessions/{id}/status', { path: { id: this.sessionId } })).waiting ?? [];
  }

  /** Answer a request for approval; at 0 none is open any more, and the turn goes on. */
  async answer(approvalId: string, decision: 'once' | 'session' | 'project' | 'deny', reason?: string): Promise<number> {
    const path = { id: this.sessionId, approval_id: approvalId };
    return (await this.client.call('POST /api/sessions/{id}/approvals/{approval_id}', { path, body: { decision, reason } })).remaining;
  }
}

/** Send a prompt, a text or parts, which is durable when this resolves. Its answer may be lost: it is sent again, and runs once. */
export async function start(client: Client, sessionId: string, prompt: string | Part[], options: Omit<PromptBody, 'text' | 'parts' | 'on_busy'> & Patience = {}): Promise<Turn> {
  const { patienceMs, signal, ...said } = options;
  const on: Patience = { patienceMs, signal };
  const body: PromptBody = { ...said, message_id: said.message_id ?? newId(), on_busy: 'reject' };
  if (typeof prompt === 'string') body.text = prompt;
  else body.parts = prompt;
  const waits = new Waits(on);
  for (;;) {
    try {
      const taken = await client.call('POST /api/sessions/{id}/prompt', { path: { id: sessionId }, body, signal });
      return new Turn(client, sessionId, taken.message_id, on);
    } catch (error) {
      await waits.after(error);
    }
  }
}

/** What happens on the server. Each connection begins with `hello`: what happened before it is to be looked up. */
export async function* events(client: Client, on: Patience = {}): AsyncGenerator<Frame<'GET /api/events'>, void> {
  const waits = new Waits(on);
  for (;;) {
    try {
      for await (const event of frames(client, 'GET /api/events', { signal: on.signal })) {
        waits.reset();
        yield event;
      }
      throw new Unreachable(new Error('the server has ended'));
    } catch (error) {
      await waits.after(error);
    }
  }
}

/** Where a page is not trusted with `randomUUID`, too. */
function newId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
