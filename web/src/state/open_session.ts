/** One open session: loads its messages, reads the one that is being written, and keeps both up to date. */

import type { Client } from '../api/client';
import type { HostEvent } from '../api/events';
import { describeError, Problem } from '../api/problem';
import type { Message, Status } from '../api/types';
import { Backoff } from './backoff';
import { OlderMessages } from './older_messages';
import { Refetcher, Revision } from './refetch';
import { asMessage, SessionBase } from './session_base';
import { SessionStream, type StreamState } from './session_stream';
import { joinTail } from './tail';
import { TreeReader } from './tree_reader';

/** Messages loaded when a session is opened, and with each change. */
const FIRST_PAGE = 40;
const TAIL_PAGE = 60;

export class OpenSession extends SessionBase {
  readonly tree = new TreeReader(this);
  readonly older: OlderMessages = new OlderMessages(this, this.tree, () => this.whenLoaded());
  protected readonly stream: SessionStream;
  /** A response requested before the newest status event is older. */
  private readonly statusEvents = new Revision();
  /** A stream is newer than responses requested before it. */
  private readonly streams = new Revision();
  /** A refresh was requested while a stream was being read: the next turn may have started. */
  private refreshAfterStream = false;
  /** The model chosen for the next message. */
  private nextModel: string | null = null;
  private readonly tailReads = new Refetcher(() => this.readTail());
  private readonly queueReads = new Refetcher(() => this.readQueue());
  private readonly contextReads = new Refetcher(() => this.readContext());
  private readonly retry = new Backoff();

  constructor(id: string, client: Client) {
    super(id, client);
    this.stream = new SessionStream(id, client, {
      state: (stream) => {
        if (isStreaming(stream) && !this.streaming) this.streams.change();
        this.store.set({ stream });
      },
      show: (message) => this.store.set(({ messages }) => ({ messages: withMessage(messages, message) })),
      ended: () => void this.settle(),
    });
  }

  async open(): Promise<void> {
    const path = { id: this.id };
    this.retry.cancel();
    const statusIsNewest = this.statusEvents.mark();
    try {
      const [session, page] = await Promise.all([
        this.client.call('GET /api/sessions/{id}', { path }),
        this.client.call('GET /api/sessions/{id}/messages', { path, query: { limit: FIRST_PAGE } }),
      ]);
      // An event may have caused a newer refresh meanwhile.
      if (this.closed || this.store.get().loaded) return;
      const messages = page.messages.map(asMessage);
      // A message sent before the history was loaded stays the newest.
      const sent = new Set(this.messages.map((message) => message.id));
      const own = messages.findIndex((message) => sent.has(message.id) || sent.has(message.metadata?.client_message_id ?? ''));
      this.store.set((state) => ({
        session,
        messages: [...(own < 0 ? messages : messages.slice(0, own)), ...state.messages],
        status: statusIsNewest() ? session.status : state.status,
        loaded: true,
        failed: null,
        missing: false,
        older: messages.length === FIRST_PAGE,
      }));
      void this.tree.refresh();
      void this.refreshAround();
      if (isLive(this.store.get().status)) void this.attach();
    } catch (error) {
      this.failToOpen(error);
    }
  }

  /** Show the error. Retry a temporary one with backoff, or when the connection is back. */
  private failToOpen(error: unknown): void {
    if (this.closed || this.store.get().loaded) return;
    if (error instanceof Problem && error.code === 'session_not_found') return this.fail(error);
    this.store.set({ failed: describeError(error) });
    if (error instanceof Problem && error.status < 500) return;
    this.retry.schedule(() => void this.open());
  }

  /** Resolve when the newest messages are loaded, or the session does not exist. */
  whenLoaded(): Promise<void> {
    return this.when(() => this.store.get().loaded || this.store.get().missing);
  }

  close(): void {
    this.closed = true;
    this.retry.cancel();
    this.stream.close();
  }

  /** Reload the newest messages. Deferred while a stream is being read, which is newer. */
  refresh(): Promise<void> {
    if (this.streaming) {
      this.refreshAfterStream = true;
      return Promise.resolve();
    }
    // A session that was never loaded shows its error in place of the messages.
    return this.tailReads.run().catch((error) => (this.store.get().loaded ? this.fail(error) : this.failToOpen(error)));
  }

  private async readTail(): Promise<void> {
    const path = { id: this.id };
    const [statusIsNewest, tailIsNewest] = [this.statusEvents.mark(), this.streams.mark()];
    // Applied together, so that messages and rewound turns always match.
    const [session, page, newestTree] = await Promise.all([
      this.client.call('GET /api/sessions/{id}', { path }),
      this.client.call('GET /api/sessions/{id}/messages', { path, query: { limit: TAIL_PAGE } }),
      // Show the messages even if the tree cannot be loaded.
      this.tree.read().catch(() => () => ({})),
    ]);
    if (this.closed || this.streaming || !tailIsNewest()) return;
    const whole = page.messages.length < TAIL_PAGE;
    const joined = joinTail(this.messages, page.messages.map(asMessage), whole);
    this.store.set((state) => ({
      session,
      messages: joined.messages,
      ...newestTree(),
      status: statusIsNewest() ? session.status : state.status,
      loaded: true,
      failed: null,
      missing: false,
      older: whole ? false : joined.connected ? state.older : true,
    }));
    void this.ignoringErrors(() => this.tree.fill());
  }

  /** Refresh the queue and the context; the tree is loaded with the messages. */
  async refreshAround(): Promise<void> {
    await Promise.all([this.refreshQueue(), this.refreshContext()]);
  }

  refreshQueue(): Promise<void> {
    return this.queueReads.run();
  }

  refreshContext(): Promise<void> {
    return this.contextReads.run();
  }

  /** Measure the context for another model than the session's, whose window may differ. */
  measureFor(model: string | null): void {
    if (model === this.nextModel) return;
    this.nextModel = model;
    void this.refreshContext();
  }

  private async readQueue(): Promise<void> {
    await this.ignoringErrors(async () => {
      const { messages } = await this.client.call('GET /api/sessions/{id}/queue', { path: { id: this.id } });
      this.store.set({ queue: messages.map(asMessage) });
    });
  }

  private async readContext(): Promise<void> {
    await this.ignoringErrors(async () => {
      const model = this.nextModel;
      const context = await this.client.call('GET /api/sessions/{id}/context', { path: { id: this.id }, query: model ? { model } : {} });
      this.store.set({ context });
    });
  }

  /** Handle an event of this session. */
  onEvent(event: HostEvent): void {
    switch (event.type) {
      case 'status':
        this.statusEvents.change();
        this.store.set({ status: event.status as Status });
        break;
      case 'turn_started':
        void this.attach();
        break;
      case 'turn_finished':
      case 'context_compacted':
      case 'approval_requested':
      case 'approval_answered':
      case 'session_updated':
        void this.settle();
        break;
      case 'queue_changed':
        void this.refreshQueue();
        break;
      case 'session_deleted':
        this.store.set({ missing: true });
        break;
    }
  }

  /** Catch up after a reconnect. */
  async onBack(): Promise<void> {
    if (!this.store.get().loaded) return this.open();
    // The stream may be as dead as the events were, and what follows waits for its end.
    this.stream.reconnect();
    if (this.streaming) await this.ignoringErrors(() => this.askStatus());
    await this.refresh();
    await this.refreshAround();
    if (isLive(this.store.get().status)) void this.attach();
  }

  /** Catch up with status events that were sent before the events were connected. */
  async onFirstConnection(): Promise<void> {
    const before = JSON.stringify(this.store.get().status);
    if (!this.streaming && !this.store.get().loaded) return;
    await this.ignoringErrors(() => this.askStatus());
    if (this.store.get().loaded && JSON.stringify(this.store.get().status) !== before) await this.onBack();
  }

  protected async askStatus(): Promise<void> {
    const isNewest = this.statusEvents.mark();
    const status = await this.client.call('GET /api/sessions/{id}/status', { path: { id: this.id } });
    if (isNewest()) this.store.set({ status });
  }

  /** Resolve when no stream is being read, or a turn is running. */
  protected whenStreamEnds(): Promise<void> {
    return this.when(() => !this.streaming || isLive(this.store.get().status));
  }

  private when(holds: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      const check = () => {
        if (!holds()) return;
        unsubscribe();
        resolve();
      };
      const unsubscribe = this.store.subscribe(check);
      check();
    });
  }

  /** Whether a stream is newer than what the store has. */
  get streaming(): boolean {
    return isStreaming(this.store.get().stream);
  }

  /** Read the message of the running turn. */
  private async attach(): Promise<void> {
    await this.refresh();
    // The stream being read may be that of the previous turn.
    if (this.store.get().stream !== 'idle') this.refreshAfterStream = true;
    // The event may arrive after the turn has ended and another message was sent.
    else if (!this.closed && isLive(this.store.get().status)) this.stream.join();
  }

  /** After a stream or a change: refresh, and read the next stream if a turn is running. */
  protected async settle(): Promise<void> {
    if (this.closed) return;
    if (this.streaming) {
      this.refreshAfterStream = true;
      return;
    }
    const again = this.refreshAfterStream;
    this.refreshAfterStream = false;
    await this.refresh();
    void this.refreshAround();
    if (again && !this.streaming && isLive(this.store.get().status)) await this.attach();
  }
}

export function isLive(status: Status): boolean {
  return status.state === 'busy' || status.state === 'retrying';
}

export function isStreaming(stream: StreamState): boolean {
  return stream === 'sending' || stream === 'reading' || stream === 'lost';
}

function withMessage(messages: Message[], message: Message): Message[] {
  const at = messages.findLastIndex(({ id }) => id === message.id);
  return at < 0 ? [...messages, message] : messages.toSpliced(at, 1, message);
}
