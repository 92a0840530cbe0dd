/** One open session: its messages in the AI SDK's own chat, and what the page may do with it. */

import { Chat } from '@ai-sdk/react';
import { DefaultChatTransport, type FileUIPart, generateId } from 'ai';
import { type Client, isProblem } from '../api/client';
import type { HostEvent } from '../api/events';
import { inWords, Problem, Unreachable } from '../api/problem';
import {
  type ContextReport,
  type Message,
  modelOf,
  type Session,
  type Status,
  type StoredMessage,
  textOf,
  type TreeView,
} from '../api/types';
import { Store } from './store';
import { joinTail } from './tail';

/** How much is read when a session is opened, and with each step back. */
export const FIRST_PAGE = 40;
export const OLDER_PAGE = 200;
/** The largest page there is, for a long way back. */
const MOST = 500;

export interface Focus {
  messageId: string;
  /** A new number each time, so that the same message can be gone to twice. */
  asked: number;
}

export interface ConversationState {
  session: Session | null;
  /** Deleted, or never there. */
  missing: boolean;
  /** Whether the end of the session has been read. */
  loaded: boolean;
  /** Whether there is more before the first message that was read. */
  older: boolean;
  loadingOlder: boolean;
  status: Status;
  queue: Message[];
  context: ContextReport | null;
  tree: TreeView | null;
  /** The newest refusal, for people; or what was found not to be needed. */
  notice: { text: string; bad: boolean } | null;
  focus: Focus | null;
  /** A text for the composer: what a rewind handed back, or what could not be sent. */
  draft: { text: string; asked: number } | null;
}

export type Decision = 'once' | 'session' | 'project' | 'deny';

export interface Outgoing {
  text: string;
  files?: FileUIPart[];
  /** `provider/model`, when it is not the session's. */
  model?: string;
}

const IDLE: Status = { state: 'idle' } as Status;

export class Conversation {
  readonly store = new Store<ConversationState>({
    session: null,
    missing: false,
    loaded: false,
    older: false,
    loadingOlder: false,
    status: IDLE,
    queue: [],
    context: null,
    tree: null,
    notice: null,
    focus: null,
    draft: null,
  });
  readonly chat: Chat<Message>;
  /** The message as it was read before its stream was joined. */
  joined: Message | null = null;
  private closed = false;
  private counter = 0;
  /** A turn started while another stream was being read: look again when that one is over. */
  private lookAgain = false;
  private answered: { taken: () => void; refused: (error: unknown) => void } | null = null;
  private goingBack: Promise<void> | null = null;
  private reading: Promise<void> | null = null;
  private readAgain = false;

  constructor(
    readonly id: string,
    private readonly client: Client,
  ) {
    this.chat = new Chat<Message>({
      id,
      generateId,
      transport: new DefaultChatTransport<Message>({
        api: '/api/chat',
        fetch: this.fetch,
        // The store knows the history; the server takes nothing but the newest message from the body.
        prepareSendMessagesRequest: ({ messages, trigger, messageId, body }) => ({
          body: { ...body, id, trigger, messageId, messages: messages.slice(-1) },
        }),
      }),
    });
  }

  // ------------------------------------------------------------------ reading

  async open(): Promise<void> {
    const path = { id: this.id };
    try {
      const [session, page] = await Promise.all([
        this.client.call('GET /api/sessions/{id}', { path }),
        this.client.call('GET /api/sessions/{id}/messages', { path, query: { limit: FIRST_PAGE } }),
      ]);
      if (this.closed) return;
      const messages = page.messages.map(asMessage);
      this.chat.messages = messages;
      this.store.set({ session, status: session.status, loaded: true, missing: false, older: messages.length === FIRST_PAGE });
      void this.refreshAround();
      if (isLive(session.status)) void this.attach();
    } catch (error) {
      this.fail(error);
    }
  }

  close(): void {
    this.closed = true;
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
    const here = () =>
      this.chat.messages.some((message) => message.id === messageId || message.metadata?.client_message_id === messageId);
    if (!this.store.get().tree) await this.refreshTree();
    const hidden = !this.onLine(messageId);
    while (!hidden && !here() && this.store.get().older && !this.closed) {
      const before = this.chat.messages.length;
      await this.loadOlder(MOST);
      if (this.chat.messages.length === before) break;
    }
    this.counter += 1;
    this.store.set({ focus: { messageId, asked: this.counter } });
  }

  private onLine(messageId: string): boolean {
    const turns = this.store.get().tree?.turns ?? [];
    return turns.some((turn) => turn.on_line && turn.messages.includes(messageId));
  }

  /** Bring the end of the conversation to what the server says. Not while a stream is being read: it says more. */
  refresh(): Promise<void> {
    if (this.streaming) {
      this.lookAgain = true;
      return Promise.resolve();
    }
    if (this.reading) {
      this.readAgain = true;
      return this.reading;
    }
    this.reading = this.readTail()
      .catch((error) => this.fail(error))
      .finally(() => {
        this.reading = null;
        if (this.readAgain) {
          this.readAgain = false;
          void this.refresh();
        }
      });
    return this.reading;
  }

  private async readTail(): Promise<void> {
    const path = { id: this.id };
    const limit = Math.min(500, Math.max(FIRST_PAGE, 60));
    const [session, page] = await Promise.all([
      this.client.call('GET /api/sessions/{id}', { path }),
      this.client.call('GET /api/sessions/{id}/messages', { path, query: { limit } }),
    ]);
    if (this.closed || this.streaming) return;
    const whole = page.messages.length < limit;
    const joined = joinTail(this.chat.messages, page.messages.map(asMessage), whole);
    this.chat.messages = joined.messages;
    this.store.set((state) => ({
      session,
      status: session.status,
      loaded: true,
      missing: false,
      older: whole ? false : joined.kept ? state.older : true,
    }));
  }

  /** Everything that stands around the messages. */
  async refreshAround(): Promise<void> {
    await Promise.all([this.refreshQueue(), this.refreshContext(), this.refreshTree()]);
  }

  async refreshQueue(): Promise<void> {
    await this.quietly(async () => {
      const { messages } = await this.client.call('GET /api/sessions/{id}/queue', { path: { id: this.id } });
      this.store.set({ queue: messages.map(asMessage) });
    });
  }

  async refreshContext(): Promise<void> {
    await this.quietly(async () => {
      this.store.set({ context: await this.client.call('GET /api/sessions/{id}/context', { path: { id: this.id } }) });
    });
  }

  async refreshTree(): Promise<void> {
    await this.quietly(async () => {
      this.store.set({ tree: await this.client.call('GET /api/sessions/{id}/tree', { path: { id: this.id } }) });
    });
  }

  /** What the host says happened to this session. */
  onEvent(event: HostEvent): void {
    switch (event.type) {
      case 'status':
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

  get streaming(): boolean {
    return this.chat.status === 'submitted' || this.chat.status === 'streaming';
  }

  /** Read the live message from its beginning and on. The SDK replaces what is there of it, so nothing doubles. */
  private async attach(): Promise<void> {
    if (this.streaming) {
      this.lookAgain = true;
      return;
    }
    await this.refresh();
    if (this.closed || this.streaming) return;
    this.chat.clearError();
    this.joined = this.chat.messages.findLast((message) => message.role === 'assistant') ?? null;
    await this.chat.resumeStream();
    await this.settle();
  }

  /** After a stream or a change: what the server says now; and on, when something runs again. */
  private async settle(): Promise<void> {
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

  // ------------------------------------------------------------------- acting

  /** Send it, or queue it behind what runs. Resolves when the server has it; a refusal hands the text back. */
  async send({ text, files = [], model }: Outgoing): Promise<void> {
    const parts: Message['parts'] = [...files, ...(text ? [{ type: 'text' as const, text }] : [])];
    const { status } = this.store.get();
    this.store.set({ notice: null });
    const messageId = generateId();
    try {
      if (this.streaming || isLive(status) || status.waiting?.length) {
        await this.enqueue(messageId, parts, model);
        return;
      }
      try {
        await this.stream(() => this.chat.sendMessage({ parts }, { body: bodyOf(model) }));
      } catch (error) {
        if (!isProblem(error, 'run_in_flight') && !isProblem(error, 'waiting_for_human')) throw error;
        // Another window was first.
        await this.enqueue(messageId, parts, model);
        await this.refresh();
      }
    } catch (error) {
      this.handBack(text, error);
      throw error;
    }
  }

  private async enqueue(messageId: string, parts: Message['parts'], model?: string): Promise<void> {
    await this.client.call('POST /api/sessions/{id}/prompt', {
      path: { id: this.id },
      body: { parts: parts, message_id: messageId, on_busy: 'queue', ...bodyOf(model) },
    });
    void this.refreshQueue();
  }

  /** Say something else in the place of a user message. */
  async edit(messageId: string, text: string, model?: string): Promise<void> {
    // Its files go along: only the words are said anew.
    const files = this.chat.messages.find((message) => message.id === messageId)?.parts.filter((part) => part.type === 'file') ?? [];
    const parts: Message['parts'] = [...files, { type: 'text', text }];
    await this.acting(() => this.stream(() => this.chat.sendMessage({ parts, messageId }, { body: bodyOf(model) })));
  }

  /** Have a user message answered once more; `messageId` is the answer's. */
  async regenerate(messageId: string, model?: string): Promise<void> {
    await this.acting(() => this.stream(() => this.chat.regenerate({ messageId, body: bodyOf(model) })));
  }

  async abort(): Promise<void> {
    await this.acting(() => this.client.call('POST /api/sessions/{id}/abort', { path: { id: this.id } }));
  }

  async goOn(): Promise<void> {
    await this.acting(() => this.client.call('POST /api/sessions/{id}/continue', { path: { id: this.id } }));
  }

  async decide(approvalId: string, decision: Decision, reason?: string): Promise<void> {
    await this.acting(() =>
      this.client.call('POST /api/sessions/{id}/approvals/{approval_id}', {
        path: { id: this.id, approval_id: approvalId },
        body: { decision, ...(reason ? { reason } : {}) },
      }),
    );
    void this.settle();
  }

  async answer(toolCallId: string, output: string): Promise<void> {
    await this.acting(() =>
      this.client.call('POST /api/sessions/{id}/answers/{tool_call_id}', {
        path: { id: this.id, tool_call_id: toolCallId },
        body: { output },
      }),
    );
    void this.settle();
  }

  /** Go back to a user message; its text comes back to the composer. */
  async rewind(messageId: string): Promise<void> {
    await this.acting(async () => {
      const moved = await this.client.call('POST /api/sessions/{id}/rewind', {
        path: { id: this.id },
        body: { message_id: messageId, mode: 'edit' },
      });
      if (moved.draft) this.offer(moved.draft);
    });
    await this.settle();
  }

  /** Undo the newest rewind; where the conversation went on since, go to the end of what was rewound. */
  async unrewind(tip?: string): Promise<void> {
    await this.acting(async () => {
      const path = { id: this.id };
      if (tip === undefined) {
        await this.client.call('POST /api/sessions/{id}/unrewind', { path });
      } else {
        await this.client.call('POST /api/sessions/{id}/head', { path, body: { turn_id: tip } });
      }
    });
    await this.settle();
  }

  async goTo(turnId: string): Promise<void> {
    await this.unrewind(turnId);
  }

  /** A session that begins as a copy up to this message. */
  async branch(fromMessageId: string, options: { title?: string; ephemeral?: boolean } = {}): Promise<Session> {
    const metadata: Record<string, unknown> = {};
    if (options.title) metadata.title = options.title;
    if (options.ephemeral) metadata.ephemeral = true;
    return this.acting(() =>
      this.client.call('POST /api/sessions/{id}/branch', {
        path: { id: this.id },
        body: { from_message_id: fromMessageId, metadata },
      }),
    );
  }

  async fork(turnId: string): Promise<Session> {
    return this.acting(() => this.client.call('POST /api/turns/{id}/fork', { path: { id: turnId }, body: {} }));
  }

  async compact(focus?: string): Promise<void> {
    await this.acting(async () => {
      const done = await this.client.call('POST /api/sessions/{id}/compact', {
        path: { id: this.id },
        body: (focus ? { focus } : {}),
      });
      if (!done.compacted) this.say('There is nothing to summarise yet.');
    });
    await this.settle();
  }

  async prune(): Promise<void> {
    await this.acting(async () => {
      const done = await this.client.call('POST /api/sessions/{id}/prune', { path: { id: this.id } });
      if (!done.compacted) this.say('There are no older tool outputs to prune.');
    });
    await this.settle();
  }

  async cancelQueued(messageId: string): Promise<void> {
    await this.acting(() =>
      this.client.call('DELETE /api/sessions/{id}/queue/{message_id}', { path: { id: this.id, message_id: messageId } }),
    );
    void this.refreshQueue();
  }

  async patch(change: { title?: string; archived?: boolean; metadata?: Record<string, unknown> }): Promise<void> {
    await this.acting(async () => {
      const session = await this.client.call('PATCH /api/sessions/{id}', { path: { id: this.id }, body: change });
      this.store.set({ session });
    });
  }

  /** Put a text into the composer. */
  offer(text: string): void {
    this.counter += 1;
    this.store.set({ draft: { text, asked: this.counter } });
  }

  /** Tell something that is no failure; null takes back what was told. */
  say(text: string | null): void {
    this.store.set({ notice: text === null ? null : { text, bad: false } });
  }

  /** The text of the newest user message, for Up in an empty composer. */
  lastOwn(): { id: string; text: string } | null {
    const message = this.chat.messages.findLast((candidate) => candidate.role === 'user' && !candidate.metadata?.synthetic);
    return message ? { id: message.id, text: textOf(message) } : null;
  }

  // ------------------------------------------------------------------ helpers

  /** Starts a stream; resolves when the server has taken it. What it reads goes on by itself, to its end. */
  private stream(begin: () => Promise<void>): Promise<void> {
    return new Promise((resolve, reject) => {
      this.answered = { taken: resolve, refused: reject };
      void begin()
        .then(() => this.answered?.refused(this.chat.error ?? new Unreachable()))
        .finally(() => {
          this.answered = null;
          if (!this.closed) void this.settle();
        });
    });
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

  private async acting<T>(act: () => Promise<T>): Promise<T> {
    this.store.set({ notice: null });
    try {
      return await act();
    } catch (error) {
      this.fail(error);
      throw error;
    }
  }

  private handBack(text: string, error: unknown): void {
    if (text) this.offer(text);
    this.fail(error);
    void this.settle();
  }

  private fail(error: unknown): void {
    if (this.closed) return;
    if (error instanceof Problem && error.code === 'session_not_found') {
      this.store.set({ missing: true });
      return;
    }
    // The banner of the connection says that the server is away; one sentence is enough.
    if (error instanceof Unreachable) return;
    this.store.set({ notice: { text: inWords(error), bad: true } });
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

function bodyOf(model?: string): Record<string, unknown> {
  return model ? { model: modelOf(model) } : {};
}

function asMessage(stored: StoredMessage): Message {
  return stored as unknown as Message;
}
