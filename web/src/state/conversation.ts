/** A conversation: an open session, and what may be done with it. */

import { type FileUIPart, generateId } from 'ai';
import { isProblem } from '../api/client';
import { Problem, Unreachable } from '../api/problem';
import { type Message, type Session, textOf } from '../api/types';
import { isLive, OpenSession } from './open_session';

export type Mode = 'ask' | 'accept_edits' | 'read_only';
export type Decision = 'once' | 'session' | 'project' | 'deny';

export interface Outgoing {
  text: string;
  files?: FileUIPart[];
  /** `provider/model`, when it is not the session's. */
  model?: string;
  /** Told of the conversation that was made for it, before the page goes there. */
  onBegun?: (conversation: Conversation) => void;
}

export class Conversation extends OpenSession {
  /** A change of the mode that is on its way: nothing is begun before it, in a freer one. */
  private changing: Promise<void> | null = null;

  /** Send it, or queue it behind what runs. Resolves when the server has it; a refusal hands the text back. */
  async send({ text, files = [], model }: Outgoing): Promise<void> {
    const parts: Message['parts'] = [...files, ...(text ? [{ type: 'text' as const, text }] : [])];
    this.store.set({ notice: null });
    const messageId = generateId();
    try {
      await this.changing;
      const { status } = this.store.get();
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
    await this.acting(async () => {
      // Whether something runs is the server's to say: word of it may lag behind. An answer that is over and still being read is waited for.
      if (this.streaming) await this.askStatus();
      await this.changing;
      await this.whenRead();
      if (this.streaming) throw new Problem(409, 'run_in_flight', 'something is running');
      await this.stream(async () => {
        // A message that was just sent gets the server's id while its change is being typed.
        const old = this.chat.messages.findLast((message) => message.id === messageId || message.metadata?.client_message_id === messageId);
        if (!old) throw new Error('the message that you are editing is no longer in this conversation');
        const parts: Message['parts'] = [...old.parts.filter((part) => part.type === 'file'), { type: 'text', text }];
        await this.chat.sendMessage({ parts, messageId: old.id }, { body: bodyOf(model) });
      });
    });
  }

  /** Have a user message answered once more; `messageId` is the answer's. */
  async regenerate(messageId: string, model?: string): Promise<void> {
    await this.acting(async () => {
      await this.changing;
      await this.stream(() => this.chat.regenerate({ messageId, body: bodyOf(model) }));
    });
  }

  async abort(): Promise<void> {
    await this.acting(() => this.client.call('POST /api/sessions/{id}/abort', { path: { id: this.id } }));
  }

  /** Go on with the newest turn where it stopped, or have its prompt answered anew. */
  async goOn(mode: 'on' | 'again' = 'on'): Promise<void> {
    await this.acting(async () => {
      await this.changing;
      await this.client.call('POST /api/sessions/{id}/continue', { path: { id: this.id }, body: { mode } });
    });
  }

  /** Hold back what waits, or go on with it. */
  async pauseQueue(paused: boolean): Promise<void> {
    await this.acting(() => this.client.call('POST /api/sessions/{id}/queue/pause', { path: { id: this.id }, body: { paused } }));
  }

  /** `pattern` is one of those the request offers: how far the rule goes that the answer stores. */
  async decide(approvalId: string, decision: Decision, { reason, pattern }: { reason?: string; pattern?: string } = {}): Promise<void> {
    await this.acting(() =>
      this.client.call('POST /api/sessions/{id}/approvals/{approval_id}', {
        path: { id: this.id, approval_id: approvalId },
        body: { decision, ...(reason ? { reason } : {}), ...(pattern ? { pattern } : {}) },
      }),
    );
    void this.settle();
  }

  /** One word for those of the requests that wait still which were `seen`. */
  async decideAll(decision: Decision, seen: readonly string[]): Promise<void> {
    const approval_ids = (this.store.get().status.waiting ?? []).flatMap((wait) => wait.approval_id ?? []).filter((id) => seen.includes(id));
    await this.acting(() => this.client.call('POST /api/sessions/{id}/approvals', { path: { id: this.id }, body: { decision, approval_ids } }));
    void this.settle();
  }

  /** How freely the session works from now on. */
  async setMode(mode: Mode): Promise<void> {
    // It stands there from now on; where it is refused, what is read next takes it back.
    this.store.set(({ session }) => ({ session: session && { ...session, mode } }));
    const change = this.acting(async () => void (await this.client.call('PATCH /api/sessions/{id}', { path: { id: this.id }, body: { mode } })));
    this.changing = change;
    try {
      await change;
    } finally {
      if (this.changing === change) this.changing = null;
      void this.settle();
    }
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
    const shown = new Set(this.ownTexts());
    await this.acting(async () => {
      const path = { id: this.id };
      if (tip === undefined) {
        await this.client.call('POST /api/sessions/{id}/unrewind', { path });
      } else {
        await this.client.call('POST /api/sessions/{id}/head', { path, body: { turn_id: tip } });
      }
    });
    await this.settle();
    // The rewind left a text in the composer to be said anew; now it stands in its place again.
    const back = this.ownTexts().filter((text) => !shown.has(text));
    if (back.length > 0) this.offer('', back);
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

  /** Its files stay with it, and it keeps its place. */
  async editQueued(messageId: string, text: string): Promise<void> {
    await this.acting(() => this.client.call('PATCH /api/sessions/{id}/queue/{message_id}', { path: { id: this.id, message_id: messageId }, body: { text } }));
    void this.refreshQueue();
  }

  /** Before another one, or last. */
  async moveQueued(messageId: string, before: string | null): Promise<void> {
    await this.acting(() => this.client.call('POST /api/sessions/{id}/queue/{message_id}/move', { path: { id: this.id, message_id: messageId }, body: { before } }));
    void this.refreshQueue();
  }

  /** Now: what runs makes way for it. */
  async sendQueued(messageId: string): Promise<void> {
    await this.acting(() => this.client.call('POST /api/sessions/{id}/queue/{message_id}/send', { path: { id: this.id, message_id: messageId } }));
    void this.refreshQueue();
  }

  async patch(change: { title?: string; archived?: boolean; metadata?: Record<string, unknown> }): Promise<void> {
    await this.acting(async () => {
      const session = await this.client.call('PATCH /api/sessions/{id}', { path: { id: this.id }, body: change });
      this.store.set({ session });
    });
  }

  /** Put a text into the composer. */
  offer(text: string, instead?: string[]): void {
    this.counter += 1;
    this.store.set({ draft: { text, asked: this.counter, instead } });
  }

  private ownTexts(): string[] {
    return this.chat.messages.filter((message) => message.role === 'user').map(textOf);
  }

  /** Tell something that is no failure; null takes back what was told. */
  say(text: string | null): void {
    this.store.set({ notice: text === null ? null : { text, bad: false } });
  }

  /** Tell why something was not even tried. */
  refuse(text: string): void {
    this.store.set({ notice: { text, bad: true } });
  }

  /** The text of the newest user message, for Up in an empty composer. */
  lastOwn(): { id: string; text: string } | null {
    const message = this.chat.messages.findLast((candidate) => candidate.role === 'user' && !candidate.metadata?.synthetic);
    return message ? { id: message.id, text: textOf(message) } : null;
  }

  /** Starts a stream; resolves when the server has taken it. What it reads goes on by itself, to its end. */
  private async stream(begin: () => Promise<void>): Promise<void> {
    await this.leaveOther();
    return new Promise((resolve, reject) => {
      this.answered = { taken: resolve, refused: reject };
      void begin()
        .then(() => this.answered?.refused(this.chat.error ?? new Unreachable()))
        .catch(reject)
        .finally(() => {
          this.answered = null;
          if (!this.closed) void this.settle();
        });
    });
  }

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
}

function bodyOf(model?: string): Record<string, unknown> {
  return model ? { model } : {};
}
