/** Reads the message that a session is writing, over as many connections as it takes. */

import { type ChatBody, type Chunk, type Client, frames, isTemporary, Position, RESET } from '@clew/client';
import type { Message } from '../api/types';
import { Backoff } from './backoff';
import { MessageFold } from './message_fold';

/**
 * - `idle`: nothing is read.
 * - `joining`: the server has been asked for the message that is being written; there may be none.
 * - `sending`: a prompt has been sent, and not been accepted yet.
 * - `reading`: chunks arrive.
 * - `lost`: the connection is gone; the next one continues after the position.
 */
export type StreamState = 'idle' | 'joining' | 'sending' | 'reading' | 'lost';

export interface StreamViewer {
  state: (state: StreamState) => void;
  show: (message: Message) => void;
  /** The stream has ended: read the rest from the store. */
  ended: () => void;
}

interface ConnectionOptions {
  signal: AbortSignal;
  onOpen: () => void;
  onId: (id: string) => void;
}

export class SessionStream {
  private state: StreamState = 'idle';
  /** The newest connection; chunks of an earlier one are ignored. */
  private connection: AbortController | null = null;
  /** One object for each `send` and `join`. */
  private position = new Position();
  private fold: MessageFold | null = null;
  /** Done when the chunks taken so far are in the fold. */
  private applied: Promise<void> = Promise.resolve();
  private readonly retry = new Backoff();

  constructor(
    private readonly id: string,
    private readonly client: Client,
    private readonly viewer: StreamViewer,
  ) {}

  /** Send a prompt and read its answer. Resolves when the server has accepted the prompt. */
  send(body: ChatBody): Promise<void> {
    this.begin('sending');
    return new Promise((accept, refuse) => void this.read((options) => frames(this.client, 'POST /api/chat', { ...options, body }), accept, refuse));
  }

  /** Read the message that is being written, if there is one, from its first part. */
  join(): void {
    this.begin('joining');
    void this.follow();
  }

  /** Continue on a new connection: the present one may be dead. A prompt that was not accepted yet is not sent again. */
  reconnect(): void {
    const isOpen = this.connection !== null && this.position.cursor !== null;
    if (isOpen || this.state === 'lost') void this.follow();
  }

  /** Stop reading, not the turn. */
  close(): void {
    this.connection?.abort();
    this.connection = null;
    this.retry.cancel();
    this.fold?.drop();
    this.fold = null;
  }

  private begin(state: StreamState): void {
    this.close();
    this.position = new Position();
    this.applied = Promise.resolve();
    this.put(state);
  }

  private put(state: StreamState): void {
    this.state = state;
    this.viewer.state(state);
  }

  private finish(): void {
    this.close();
    this.put('idle');
    this.viewer.ended();
  }

  /** Continue after the position; without one, from the first part. */
  private follow(): Promise<void> {
    const query = { after: this.position.cursor ?? undefined };
    return this.read((options) => frames(this.client, 'GET /api/chat/{id}/stream', { ...options, path: { id: this.id }, query }));
  }

  private async read(
    connect: (options: ConnectionOptions) => AsyncIterable<Chunk>,
    accept: () => void = () => undefined,
    refuse: (error: unknown) => void = () => undefined,
  ): Promise<void> {
    this.connection?.abort();
    this.retry.cancel();
    const connection = new AbortController();
    this.connection = connection;
    let [isOpen, hasData, id] = [false, false, null as string | null];
    const onOpen = () => {
      isOpen = true;
      this.put('reading');
      accept();
    };
    try {
      for await (const chunk of connect({ signal: connection.signal, onOpen, onId: (given) => (id = given) })) {
        if (connection !== this.connection) return;
        hasData = true;
        this.retry.reset();
        const applied = this.take(chunk, id);
        id = null;
        await applied;
      }
      if (connection === this.connection) await this.end(isOpen);
    } catch (error) {
      refuse(error);
      if (connection !== this.connection) return;
      if (this.state === 'sending' || !isTemporary(error)) return this.finish();
      this.put('lost');
      if (hasData) void this.follow();
      else this.retry.schedule(() => void this.follow());
    }
  }

  private async end(isOpen: boolean): Promise<void> {
    const { position } = this;
    // Nothing is left to reconnect to.
    this.connection = null;
    // An empty response: what was begun is not its end.
    if (isOpen) await this.fold?.end().catch(() => undefined);
    if (position === this.position) this.finish();
  }

  /** Take a chunk. The position is after it at once, so that no connection brings it again. */
  private take(chunk: Chunk, id: string | null): Promise<void> {
    const { position } = this;
    const before = position.cursor;
    const chunks = position.take(chunk);
    // A message that begins again has no position until it is whole: the one before asks for all of it again.
    position.cursor = id ?? before;
    this.applied = this.applied.then(async () => {
      for (const one of chunks) if (position === this.position) await this.apply(one);
      if (id !== null && position === this.position) await this.fold?.catchUp();
    });
    this.applied.catch(() => undefined); // Reported by the connection, if it is still the newest.
    return this.applied;
  }

  private async apply(chunk: Chunk): Promise<void> {
    if (chunk.type === RESET) {
      this.fold?.drop();
      this.fold = null;
      return;
    }
    // The reducer would stop here; the stored turn says how it ended.
    if (chunk.type === 'error') return;
    if (chunk.type === 'start') {
      await this.fold?.end();
      this.fold = new MessageFold(this.viewer.show);
    }
    await this.fold?.add(chunk);
  }
}
