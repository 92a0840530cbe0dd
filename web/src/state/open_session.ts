/** One open session as the server has it: its messages in the AI SDK's own chat, read, and kept live. */

import { Chat } from '@ai-sdk/react';
import { generateId } from 'ai';
import type { Client } from '../api/client';
import type { HostEvent } from '../api/events';
import { failureIn, Problem, Unreachable } from '../api/problem';
import type { Message, Status, StoredMessage, TreeView } from '../api/types';
import { ChatTransport } from './chat_transport';
import { Backoff } from './backoff';
import { type ConversationState, INITIAL_STATE } from './conversation_state';
import { Rereading } from './rereading';
import { Store } from './store';
import { joinTail } from './tail';
import { joinTree } from './tree_pages';
import { standing } from '../ui/standing';

/** How much is read when a session is opened, and with each step back. */
export const FIRST_PAGE = 40;
export const OLDER_PAGE = 200;
/** The largest page there is, for a long way back. */
const MOST = 500;
/** How often a page that did not join is read again. */
const TRIES = 5;
/** Turns of the tree that are read with every change: more than a page of messages has. */
const TREE_PAGE = 100;

export class OpenSession {
  readonly store = new Store<ConversationState>(INITIAL_STATE);
  readonly chat: Chat<Message>;
  /** The message as it was read before its stream was joined. */
  joined: Message | null = null;
  protected closed = false;
  protected counter = 0;
  /** A turn started while another stream was being read: look again when that one is over. */
  private lookAgain = false;
  /** Whoever waits to hear that the server took what is being sent. */
  protected answered: { taken: () => void; refused: (error: unknown) => void } | null = null;
  private goingBack: Promise<void> | null = null;
  /** The live stream is being asked for; the SDK does not count that as streaming yet. */
  private joining = false;
  private readonly tail = new Rereading(() => this.readTail());
  private readonly queued = new Rereading(() => this.readQueue());
  private nextModel: string | null = null;
  private readonly room = new Rereading(() => this.readContext());
  /** How often the host has told the status: what was asked for before that is older. */
  private told = 0;
  /** How often a stream began to be read: it says more than what was asked for before. */
  private streams = 0;
  /** Trees that were asked for, and which of them is shown: one that comes late does not replace a newer one. */
  private treesAsked = 0;
  private treeShown = 0;
  private treeGoingBack: Promise<void> | null = null;
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
        // The store knows the history; the server takes nothing but the newest message from the body.
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
      // What happened meanwhile may have had it read already, and anew.
      if (this.closed || this.store.get().loaded) return;
      const messages = page.messages.map(asMessage);
      // Whoever was quick has said something before the rest was there; it stays the newest.
      const said = new Set(this.chat.messages.map((message) => message.id));
      const own = messages.findIndex((message) => said.has(message.id) || said.has(message.metadata?.client_message_id ?? ''));
      this.chat.messages = [...(own < 0 ? messages : messages.slice(0, own)), ...this.chat.messages];
      this.store.set({ session, status: session.status, loaded: true, failed: null, missing: false, older: messages.length === FIRST_PAGE });
      void this.refreshTree();
      void this.refreshAround();
      if (isLive(session.status)) void this.attach();
    } catch (error) {
      this.failToOpen(error);
    }
  }

  /** Show the error, and retry where it may be temporary: later each time, or when the connection is back. */
  private failToOpen(error: unknown): void {
    if (this.closed || this.store.get().loaded) return;
    if (error instanceof Problem && error.code === 'session_not_found') return this.fail(error);
    this.store.set({ failed: failureIn(error) });
    if (error instanceof Problem && error.status < 500) return;
    this.retry.schedule(() => void this.open());
  }

  /** Resolves when its end has been read, or it is known that there is none. */
  whenLoaded(): Promise<void> {
    return new Promise((resolve) => {
      const look = () => {
        const { loaded, missing } = this.store.get();
        if (!loaded && !missing) return;
        leave();
        resolve();
      };
      const leave = this.store.subscribe(look);
      look();
    });
  }

  close(): void {
    this.closed = true;
    this.retry.cancel();
    // Ends the reading, not the run: only `abort` stops that.
    void this.chat.stop();
  }

  /** One page further back. Whoever asks while it is on its way waits for the same one. */
  loadOlder(limit = OLDER_PAGE): Promise<void> {
    this.goingBack ??= this.readOlder(limit).finally(() => {
      this.goingBack = null;
    });
    return this.goingBack;
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
      // First, so that no banner comes between messages that are read already.
      await this.quietly(() => this.coverTree(messages));
      // A refresh may have moved the beginning meanwhile; then this page joins nothing.
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

  /** All the way back to the first message there is. */
  async loadAll(): Promise<void> {
    while (this.store.get().older && !this.closed) {
      const before = this.chat.messages.length;
      await this.loadOlder(MOST);
      if (this.chat.messages.length === before) break;
    }
  }

  /** Read back until the message is there, or all is read. Then the page shows it wherever it is. */
  async reveal(messageId: string): Promise<void> {
    const from = standing();
    const here = () =>
      this.chat.messages.some((message) => message.id === messageId || message.metadata?.client_message_id === messageId);
    if (!this.store.get().tree) await this.refreshTree();
    const seen = here() || (await this.isSeen(messageId));
    await this.whenLoaded();
    // A refresh meanwhile may have kept a page from joining; then it is read again.
    for (let tries = 0; seen && !here() && this.store.get().older && !this.closed && tries < TRIES; tries += 1) {
      const before = this.chat.messages.length;
      await this.loadOlder(MOST);
      if (this.chat.messages.length !== before) tries = -1;
    }
    this.counter += 1;
    this.store.set({ focus: { messageId, asked: this.counter, from } });
  }

  /** Whether a message is in the conversation as it stands, however far back. Where the tree was read it says so. */
  private async isSeen(messageId: string): Promise<boolean> {
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

  /** Bring the end of the conversation to what the server says. Not while a stream is being read: it says more. */
  refresh(): Promise<void> {
    if (this.streaming) {
      this.lookAgain = true;
      return Promise.resolve();
    }
    return this.tail.again().catch((error) => this.fail(error));
  }

  private async readTail(): Promise<void> {
    const path = { id: this.id };
    const limit = Math.min(500, Math.max(FIRST_PAGE, 60));
    const { told, streams } = this;
    // Shown together: a line without its rewound turns, or with those of the line before, would be acted on.
    const [session, page, tree] = await Promise.all([
      this.client.call('GET /api/sessions/{id}', { path }),
      this.client.call('GET /api/sessions/{id}/messages', { path, query: { limit } }),
      // The messages are shown also where the tree cannot be read.
      this.readTree().catch(() => null),
    ]);
    if (this.closed || this.streaming || streams !== this.streams) return;
    const whole = page.messages.length < limit;
    const joined = joinTail(this.chat.messages, page.messages.map(asMessage), whole);
    this.chat.messages = joined.messages;
    this.store.set((state) => ({
      session,
      ...(tree && this.newest(tree)),
      status: told === this.told ? session.status : state.status,
      loaded: true,
      failed: null,
      missing: false,
      older: whole ? false : joined.kept ? state.older : true,
    }));
    void this.quietly(() => this.coverTree());
  }

  /** Everything that stands around the messages, but the tree: that is read with them. */
  async refreshAround(): Promise<void> {
    await Promise.all([this.refreshQueue(), this.refreshContext()]);
  }

  refreshQueue(): Promise<void> {
    return this.queued.again();
  }

  refreshContext(): Promise<void> {
    return this.room.again();
  }

  async refreshTree(): Promise<void> {
    await this.quietly(async () => {
      this.store.set(this.newest(await this.readTree()));
      await this.coverTree();
    });
  }

  /** The model that the next message goes to, where that is not the session's own: its window counts. */
  measureFor(model: string | null): void {
    if (model === this.nextModel) return;
    this.nextModel = model;
    void this.refreshContext();
  }

  private async readQueue(): Promise<void> {
    await this.quietly(async () => {
      const { messages } = await this.client.call('GET /api/sessions/{id}/queue', { path: { id: this.id } });
      this.store.set({ queue: messages.map(asMessage) });
    });
  }

  private async readContext(): Promise<void> {
    await this.quietly(async () => {
      const model = this.nextModel;
      const context = await this.client.call('GET /api/sessions/{id}/context', { path: { id: this.id }, query: model ? { model } : {} });
      this.store.set({ context });
    });
  }

  private async readTree(): Promise<{ tree: TreeView; asked: number }> {
    const asked = (this.treesAsked += 1);
    const tree = await this.client.call('GET /api/sessions/{id}/tree', { path: { id: this.id }, query: { limit: TREE_PAGE } });
    return { tree, asked };
  }

  private newest({ tree, asked }: { tree: TreeView; asked: number }): { tree?: TreeView } {
    if (asked < this.treeShown) return {};
    this.treeShown = asked;
    return { tree: joinTree(this.store.get().tree, tree) };
  }

  /** One page of the tree further back. Whoever asks while it is on its way waits for the same one. */
  loadOlderTree(): Promise<void> {
    this.treeGoingBack ??= this.readOlderTree().finally(() => {
      this.treeGoingBack = null;
    });
    return this.treeGoingBack;
  }

  private async readOlderTree(): Promise<void> {
    const cursor = this.store.get().tree?.next_cursor;
    if (cursor == null) return;
    const page = await this.client.call('GET /api/sessions/{id}/tree', { path: { id: this.id }, query: { limit: MOST, cursor } });
    const { tree } = this.store.get();
    // What was known may have been let go meanwhile; then this page joins nothing.
    if (tree?.next_cursor === cursor) this.store.set({ tree: joinTree(tree, page, true) });
  }

  /** Read the tree as far back as the messages: what left the line there is newer than the turn that it left. */
  private async coverTree(messages = this.chat.messages): Promise<void> {
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

  /** What the host says happened to this session. */
  onEvent(event: HostEvent): void {
    switch (event.type) {
      case 'status':
        this.told += 1;
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

  /** The connection is back: whatever happened meanwhile is read now. */
  async onBack(): Promise<void> {
    if (!this.store.get().loaded) return this.open();
    this.chat.clearError();
    await this.refresh();
    await this.refreshAround();
    if (isLive(this.store.get().status)) void this.attach();
  }

  protected async askStatus(): Promise<void> {
    const { told } = this;
    const status = await this.client.call('GET /api/sessions/{id}/status', { path: { id: this.id } });
    if (told === this.told) this.store.set({ status });
  }

  /** Resolves when no stream is being read any more, or when it turns out that something runs. */
  protected whenRead(): Promise<void> {
    return new Promise((resolve) => {
      const look = () => {
        if (this.streaming && !isLive(this.store.get().status)) return;
        leaveStatus();
        leaveStore();
        resolve();
      };
      const leaveStatus = this.chat['~registerStatusCallback'](look);
      const leaveStore = this.store.subscribe(look);
      look();
    });
  }

  get streaming(): boolean {
    return this.chat.status === 'submitted' || this.chat.status === 'streaming';
  }

  /** Read the live message from its beginning and on. The SDK replaces what is there of it, so nothing doubles. */
  private async attach(): Promise<void> {
    await this.refresh();
    // What is being joined may be the turn before this one.
    if (this.streaming || this.joining) this.lookAgain = true;
    // Word of a turn may come when it is over, and something else be sent already.
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

  /** Before something is sent: a stream that is still being asked for would say `ready` in the middle of the answer. */
  protected async leaveOther(): Promise<void> {
    if (this.joining && !this.streaming) await this.chat.stop();
  }

  /** After a stream or a change: what the server says now; and on, when something runs again. */
  protected async settle(): Promise<void> {
    if (this.streaming) {
      this.lookAgain = true;
      return;
    }
    const again = this.lookAgain;
    this.lookAgain = false;
    await this.refresh();
    void this.refreshAround();
    if (again && !this.streaming && isLive(this.store.get().status)) await this.attach();
  }

  private readonly fetch: typeof globalThis.fetch = async (input, init) => {
    const posting = init?.method === 'POST' ? this.answered : null;
    try {
      const response = await this.client.fetch(input, init);
      posting?.taken();
      if (posting) this.answered = null;
      return response;
    } catch (error) {
      posting?.refused(error);
      if (posting) this.answered = null;
      throw error;
    }
  };

  protected fail(error: unknown): void {
    if (this.closed) return;
    if (error instanceof Problem && error.code === 'session_not_found') {
      this.store.set({ missing: true });
      return;
    }
    // The banner of the connection says that the server is away; one sentence is enough.
    if (error instanceof Unreachable) return;
    const { words, then, said } = failureIn(error);
    this.store.set({ notice: { text: [words, then].filter(Boolean).join(' '), bad: true, said } });
  }

  private async quietly(read: () => Promise<void>): Promise<void> {
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
