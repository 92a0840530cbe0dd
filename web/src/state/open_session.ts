/** One open session: loads its messages into an AI SDK chat and keeps them up to date. */

import { Chat } from '@ai-sdk/react';
import { generateId } from 'ai';
import type { Client } from '../api/client';
import type { HostEvent } from '../api/events';
import { describeError, Problem, Unreachable } from '../api/problem';
import type { Message, Status, StoredMessage, TreeView } from '../api/types';
import { ChatTransport } from './chat_transport';
import { Backoff } from './backoff';
import { type ConversationState, INITIAL_STATE } from './conversation_state';
import { Refetcher } from './refetch';
import { Store } from './store';
import { joinTail } from './tail';
import { joinTree } from './tree_pages';
import { markActivity } from '../ui/user_activity';

/** Messages loaded when a session is opened, and with each older page. */
export const FIRST_PAGE = 40;
export const OLDER_PAGE = 200;
/** The largest page the server allows, for loading far back. */
const MAX_PAGE = 500;
/** Attempts for a page that does not connect to the loaded messages. */
const MAX_TRIES = 5;
/** Turns of the tree loaded with every change: more than a page of messages has. */
const TREE_PAGE = 100;

export class OpenSession {
  readonly store = new Store<ConversationState>(INITIAL_STATE);
  readonly chat: Chat<Message>;
  /** The message as loaded before its stream was joined. */
  joined: Message | null = null;
  protected closed = false;
  protected counter = 0;
  /** A turn started while another stream was being read: refresh when that one ends. */
  private refreshPending = false;
  /** Callbacks of the message that is being sent. */
  protected pendingSend: { accepted: () => void; refused: (error: unknown) => void } | null = null;
  private loadingPage: Promise<void> | null = null;
  /** The live stream has been requested; the SDK does not report that as streaming yet. */
  private joining = false;
  private readonly tailReads = new Refetcher(() => this.readTail());
  private readonly queueReads = new Refetcher(() => this.readQueue());
  private nextModel: string | null = null;
  private readonly contextReads = new Refetcher(() => this.readContext());
  /** Number of status events: a response requested before the last one is older. */
  private statusEvents = 0;
  /** Number of streams started: a stream is newer than responses requested before it. */
  private streams = 0;
  /** Number of tree requests, and the request that is shown: a late response does not replace a newer one. */
  private treeRequests = 0;
  private treeShown = 0;
  private loadingTreePage: Promise<void> | null = null;
  private readonly retry = new Backoff();

  constructor(
    readonly id: string,
    protected readonly client: Client,
  ) {
    this.chat = new Chat<Message>({
      id,
      generateId,
      transport: new ChatTransport({
        api: '/api/chat',
        fetch: this.fetch,
        // The server has the history; it reads only the newest message from the body.
        prepareSendMessagesRequest: ({ messages, trigger, messageId, body }) => ({
          body: { ...body, id, trigger, messageId, messages: messages.slice(-1) },
        }),
      }),
    });
    this.chat['~registerStatusCallback'](() => (this.streams += this.streaming ? 1 : 0));
  }

  async open(): Promise<void> {
    const path = { id: this.id };
    this.retry.cancel();
    try {
      const [session, page] = await Promise.all([
        this.client.call('GET /api/sessions/{id}', { path }),
        this.client.call('GET /api/sessions/{id}/messages', { path, query: { limit: FIRST_PAGE } }),
      ]);
      // An event may have caused a newer refresh meanwhile.
      if (this.closed || this.store.get().loaded) return;
      const messages = page.messages.map(asMessage);
      // A message sent before the history was loaded stays the newest.
      const sent = new Set(this.chat.messages.map((message) => message.id));
      const own = messages.findIndex((message) => sent.has(message.id) || sent.has(message.metadata?.client_message_id ?? ''));
      this.chat.messages = [...(own < 0 ? messages : messages.slice(0, own)), ...this.chat.messages];
      this.store.set({ session, status: session.status, loaded: true, failed: null, missing: false, older: messages.length === FIRST_PAGE });
      void this.refreshTree();
      void this.refreshAround();
      if (isLive(session.status)) void this.attach();
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
    return new Promise((resolve) => {
      const check = () => {
        const { loaded, missing } = this.store.get();
        if (!loaded && !missing) return;
        unsubscribe();
        resolve();
      };
      const unsubscribe = this.store.subscribe(check);
      check();
    });
  }

  close(): void {
    this.closed = true;
    this.retry.cancel();
    // Stops reading the stream, not the turn; only `abort` does that.
    void this.chat.stop();
  }

  /** Load an older page; concurrent calls share one request. */
  loadOlder(limit = OLDER_PAGE): Promise<void> {
    this.loadingPage ??= this.readOlder(limit).finally(() => {
      this.loadingPage = null;
    });
    return this.loadingPage;
  }

  private async readOlder(limit: number): Promise<void> {
    const first = this.chat.messages[0];
    if (!this.store.get().older || !first) return;
    this.store.set({ loadingOlder: true });
    try {
      const page = await this.client.call('GET /api/sessions/{id}/messages', {
        path: { id: this.id },
        query: { limit, before: first.id },
      });
      const messages = page.messages.map(asMessage);
      // Load the tree first, so that no banner is inserted between visible messages later.
      await this.ignoringErrors(() => this.fillTree(messages));
      // A refresh may have changed the first message; then this page does not connect.
      if (this.chat.messages[0]?.id === first.id) {
        this.chat.messages = [...messages, ...this.chat.messages];
        this.store.set({ older: messages.length === limit });
      }
    } catch (error) {
      this.fail(error);
    } finally {
      this.store.set({ loadingOlder: false });
    }
  }

  /** Load all messages back to the first one. */
  async loadAll(): Promise<void> {
    while (this.store.get().older && !this.closed) {
      const before = this.chat.messages.length;
      await this.loadOlder(MAX_PAGE);
      if (this.chat.messages.length === before) break;
    }
  }

  /** Load older pages until the message is found, then scroll to it. */
  async reveal(messageId: string): Promise<void> {
    const from = markActivity();
    const here = () =>
      this.chat.messages.some((message) => message.id === messageId || message.metadata?.client_message_id === messageId);
    if (!this.store.get().tree) await this.refreshTree();
    const exists = here() || (await this.isOnPath(messageId));
    await this.whenLoaded();
    // Retry a page that did not connect because of a refresh.
    for (let tries = 0; exists && !here() && this.store.get().older && !this.closed && tries < MAX_TRIES; tries += 1) {
      const before = this.chat.messages.length;
      await this.loadOlder(MAX_PAGE);
      if (this.chat.messages.length !== before) tries = -1;
    }
    this.counter += 1;
    this.store.set({ focus: { messageId, seq: this.counter, from } });
  }

  /** Whether a message is on the current path, however far back. Uses the tree as far as it is loaded. */
  private async isOnPath(messageId: string): Promise<boolean> {
    const { tree } = this.store.get();
    const holder = tree?.turns.find((turn) => turn.messages.includes(messageId));
    if (holder) return holder.on_line;
    if (tree && tree.next_cursor == null) return false;
    try {
      await this.client.call('GET /api/sessions/{id}/messages', { path: { id: this.id }, query: { limit: 1, before: messageId } });
      return true;
    } catch (error) {
      if (error instanceof Problem && error.code === 'message_not_found') return false;
      throw error;
    }
  }

  /** Reload the newest messages. Deferred while a stream is being read, which is newer. */
  refresh(): Promise<void> {
    if (this.streaming) {
      this.refreshPending = true;
      return Promise.resolve();
    }
    // A session that was never loaded shows its error in place of the messages.
    return this.tailReads.run().catch((error) => (this.store.get().loaded ? this.fail(error) : this.failToOpen(error)));
  }

  private async readTail(): Promise<void> {
    const path = { id: this.id };
    const limit = Math.min(500, Math.max(FIRST_PAGE, 60));
    const { statusEvents, streams } = this;
    // Applied together, so that messages and rewound turns always match.
    const [session, page, tree] = await Promise.all([
      this.client.call('GET /api/sessions/{id}', { path }),
      this.client.call('GET /api/sessions/{id}/messages', { path, query: { limit } }),
      // Show the messages even if the tree cannot be loaded.
      this.readTree().catch(() => null),
    ]);
    if (this.closed || this.streaming || streams !== this.streams) return;
    const whole = page.messages.length < limit;
    const joined = joinTail(this.chat.messages, page.messages.map(asMessage), whole);
    this.chat.messages = joined.messages;
    this.store.set((state) => ({
      session,
      ...(tree && this.newest(tree)),
      status: statusEvents === this.statusEvents ? session.status : state.status,
      loaded: true,
      failed: null,
      missing: false,
      older: whole ? false : joined.connected ? state.older : true,
    }));
    void this.ignoringErrors(() => this.fillTree());
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

  async refreshTree(): Promise<void> {
    await this.ignoringErrors(async () => {
      this.store.set(this.newest(await this.readTree()));
      await this.fillTree();
    });
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

  private async readTree(): Promise<{ tree: TreeView; request: number }> {
    const request = (this.treeRequests += 1);
    const tree = await this.client.call('GET /api/sessions/{id}/tree', { path: { id: this.id }, query: { limit: TREE_PAGE } });
    return { tree, request };
  }

  private newest({ tree, request }: { tree: TreeView; request: number }): { tree?: TreeView } {
    if (request < this.treeShown) return {};
    this.treeShown = request;
    return { tree: joinTree(this.store.get().tree, tree) };
  }

  /** Load an older page of the tree; concurrent calls share one request. */
  loadOlderTree(): Promise<void> {
    this.loadingTreePage ??= this.readOlderTree().finally(() => {
      this.loadingTreePage = null;
    });
    return this.loadingTreePage;
  }

  private async readOlderTree(): Promise<void> {
    const cursor = this.store.get().tree?.next_cursor;
    if (cursor == null) return;
    const page = await this.client.call('GET /api/sessions/{id}/tree', { path: { id: this.id }, query: { limit: MAX_PAGE, cursor } });
    const { tree } = this.store.get();
    // The known tree may have been replaced meanwhile; then this page does not connect.
    if (tree?.next_cursor === cursor) this.store.set({ tree: joinTree(tree, page, true) });
  }

  /** Load the tree as far back as the messages. Rewound turns are newer than the turn they left. */
  private async fillTree(messages = this.chat.messages): Promise<void> {
    const behind = () => {
      const turns = messages.slice(0, 4).flatMap((message) => message.metadata?.turn_id ?? []);
      const cursor = this.store.get().tree?.next_cursor;
      return cursor != null && turns.some((turn) => turn <= cursor);
    };
    while (behind() && !this.closed) {
      const before = this.store.get().tree?.next_cursor;
      await this.loadOlderTree();
      if (this.store.get().tree?.next_cursor === before) break;
    }
  }

  /** Handle an event of this session. */
  onEvent(event: HostEvent): void {
    switch (event.type) {
      case 'status':
        this.statusEvents += 1;
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

  /** Reload after a reconnect. */
  async onBack(): Promise<void> {
    if (!this.store.get().loaded) return this.open();
    this.chat.clearError();
    // A refresh is deferred while a stream is being read; a retry, for example, is only in the status.
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
    const { statusEvents } = this;
    const status = await this.client.call('GET /api/sessions/{id}/status', { path: { id: this.id } });
    if (statusEvents === this.statusEvents) this.store.set({ status });
  }

  /** Resolve when no stream is being read, or a turn is running. */
  protected whenStreamEnds(): Promise<void> {
    return new Promise((resolve) => {
      const check = () => {
        if (this.streaming && !isLive(this.store.get().status)) return;
        removeStatusCallback();
        unsubscribe();
        resolve();
      };
      const removeStatusCallback = this.chat['~registerStatusCallback'](check);
      const unsubscribe = this.store.subscribe(check);
      check();
    });
  }

  get streaming(): boolean {
    return this.chat.status === 'submitted' || this.chat.status === 'streaming';
  }

  /** Join the stream of the running turn. The SDK replaces the message, so nothing is duplicated. */
  private async attach(): Promise<void> {
    await this.refresh();
    // The stream being joined may be that of the previous turn.
    if (this.streaming || this.joining) this.refreshPending = true;
    // The event may arrive after the turn has ended and another message was sent.
    if (this.closed || this.streaming || this.joining || !isLive(this.store.get().status)) return;
    this.chat.clearError();
    this.joined = this.chat.messages.findLast((message) => message.role === 'assistant') ?? null;
    this.joining = true;
    try {
      await this.chat.resumeStream();
    } finally {
      this.joining = false;
    }
    await this.settle();
  }

  /** Before sending: cancel a pending join, which would set the status to `ready` in the middle of the answer. */
  protected async cancelJoining(): Promise<void> {
    if (this.joining && !this.streaming) await this.chat.stop();
  }

  /** After a stream or a change: refresh, and join the next stream if a turn is running. */
  protected async settle(): Promise<void> {
    if (this.streaming) {
      this.refreshPending = true;
      return;
    }
    const again = this.refreshPending;
    this.refreshPending = false;
    await this.refresh();
    void this.refreshAround();
    if (again && !this.streaming && isLive(this.store.get().status)) await this.attach();
  }

  private readonly fetch: typeof globalThis.fetch = async (input, init) => {
    const pendingSend = init?.method === 'POST' ? this.pendingSend : null;
    try {
      const response = await this.client.fetch(input, init);
      pendingSend?.accepted();
      if (pendingSend) this.pendingSend = null;
      return response;
    } catch (error) {
      pendingSend?.refused(error);
      if (pendingSend) this.pendingSend = null;
      throw error;
    }
  };

  protected fail(error: unknown): void {
    if (this.closed) return;
    if (error instanceof Problem && error.code === 'session_not_found') {
      this.store.set({ missing: true });
      return;
    }
    // The connection banner already reports this.
    if (error instanceof Unreachable) return;
    const { summary, hint, details } = describeError(error);
    this.store.set({ notice: { text: [summary, hint].filter(Boolean).join(' '), bad: true, details } });
  }

  private async ignoringErrors(read: () => Promise<void>): Promise<void> {
    try {
      await read();
    } catch (error) {
      if (error instanceof Problem && error.code === 'session_not_found') this.store.set({ missing: true });
    }
  }
}

export function isLive(status: Status): boolean {
  return status.state === 'busy' || status.state === 'retrying';
}

function asMessage(stored: StoredMessage): Message {
  return stored as unknown as Message;
}
