/** Turns: a prompt that runs exactly once, and its stream, across lost connections and server restarts. */

import type { Part, PromptBody, Waiting } from '../schema.js';
import type { Client } from './client.js';
import { type Frame, frames } from './frames.js';
import { isTemporary, Unreachable } from './problem.js';
import { type Chunk, Position } from './position.js';

export interface Patience {
  /** Time to keep retrying an unreachable server, in milliseconds; a minute by default. */
  patienceMs?: number;
  signal?: AbortSignal;
}

const RETRY_DELAYS_MS = [100, 200, 500, 1000, 2000];

class RetryTimer {
  private failures = 0;
  private since: number | null = null;

  constructor(private readonly on: Patience) {}

  reset(): void {
    this.failures = 0;
    this.since = null;
  }

  /** Resolve when it is time to retry; rethrow the error if a retry cannot help or time is up. */
  async after(error: unknown): Promise<void> {
    this.since ??= Date.now();
    if (this.on.signal?.aborted || !isTemporary(error) || Date.now() - this.since >= (this.on.patienceMs ?? 60_000)) throw error;
    await this.between();
  }

  /** Resolve after the next delay, or when the caller aborts. */
  async between(): Promise<void> {
    const ms = RETRY_DELAYS_MS[Math.min(this.failures++, RETRY_DELAYS_MS.length - 1)]!;
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
 * A prompt that the server accepted. A loop over it ends when the turn does, or waits for a human; a new loop, after an
 * approval or a break, continues with the next chunk. A `data-reset` chunk says that a message follows again from its first
 * part: drop what you have of it. Leaving a loop does not stop the turn. One loop at a time.
 */
export class Turn implements AsyncIterable<Chunk> {
  private readonly position = new Position();

  constructor(
    private readonly client: Client,
    readonly sessionId: string,
    readonly messageId: string,
    private readonly on: Patience = {},
  ) {}

  async *[Symbol.asyncIterator](): AsyncGenerator<Chunk, void> {
    const waits = new RetryTimer(this.on);
    const { position } = this;
    const onId = (id: string) => (position.cursor = id);
    for (;;) {
      const query = { message_id: this.messageId, after: position.cursor ?? undefined };
      try {
        for await (const chunk of frames(this.client, 'GET /api/chat/{id}/stream', { path: { id: this.sessionId }, query, signal: this.on.signal, onId })) {
          waits.reset();
          yield* position.take(chunk);
        }
        return;
      } catch (error) {
        await waits.after(error);
      }
    }
  }

  /** Return the calls that are waiting for a human. */
  async waiting(): Promise<Waiting[]> {
    return (await this.client.call('GET /api/sessions/{id}/status', { path: { id: this.sessionId } })).waiting ?? [];
  }

  /** Answer an approval request and return how many are left; at 0 the turn continues. */
  async answer(approvalId: string, decision: 'once' | 'session' | 'project' | 'deny', reason?: string): Promise<number> {
    const path = { id: this.sessionId, approval_id: approvalId };
    return (await this.client.call('POST /api/sessions/{id}/approvals/{approval_id}', { path, body: { decision, reason } })).remaining;
  }
}

/** Send a prompt, a text or parts; it is durable when this resolves. If the response is lost the prompt is resent, and still runs once. */
export async function start(client: Client, sessionId: string, prompt: string | Part[], options: Omit<PromptBody, 'text' | 'parts' | 'on_busy'> & Patience = {}): Promise<Turn> {
  const { patienceMs, signal, ...rest } = options;
  const on: Patience = { patienceMs, signal };
  const body: PromptBody = { ...rest, message_id: rest.message_id ?? newId(), on_busy: 'reject' };
  if (typeof prompt === 'string') body.text = prompt;
  else body.parts = prompt;
  const waits = new RetryTimer(on);
  for (;;) {
    try {
      const accepted = await client.call('POST /api/sessions/{id}/prompt', { path: { id: sessionId }, body, signal });
      return new Turn(client, sessionId, accepted.message_id, on);
    } catch (error) {
      await waits.after(error);
    }
  }
}

/** Yield the server's events. Each connection begins with `hello`; fetch the current state then, since earlier events are not sent again. */
export async function* events(client: Client, on: Patience = {}): AsyncGenerator<Frame<'GET /api/events'>, void> {
  const waits = new RetryTimer(on);
  for (;;) {
    try {
      for await (const event of frames(client, 'GET /api/events', { signal: on.signal })) {
        waits.reset();
        yield event;
      }
      throw new Unreachable(new Error('the server closed the stream'));
    } catch (error) {
      await waits.after(error);
    }
  }
}

/** Works on insecure origins too, where `randomUUID` is missing. */
function newId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
