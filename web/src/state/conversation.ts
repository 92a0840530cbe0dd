/** A conversation: an open session and its operations. */

import { type FileUIPart, generateId } from 'ai';
import { isProblem } from '../api/client';
import { Problem } from '../api/problem';
import { type Message, type Session, textOf } from '../api/types';
import { chooseFiles, filesBody, type FilesChoice, KEEP, type Move, restoredText } from '../files/choose_files';
import type { FilesRestored } from '@clew/client';
import { isLive, OpenSession } from './open_session';

export type Mode = 'ask' | 'accept_edits' | 'read_only';
export type Decision = 'once' | 'session' | 'project' | 'deny';

export interface Outgoing {
  text: string;
  files?: FileUIPart[];
  /** `provider/model`, if it differs from the session's. */
  model?: string;
  /** Called with the conversation that was created for the message, before the page opens it. */
  onCreated?: (conversation: Conversation) => void;
}

export class Conversation extends OpenSession {
  /** A pending change of the mode. Nothing is started before it is applied, under a more permissive mode. */
  private modeChange: Promise<void> | null = null;
  private drafts = 0;

  /** Send a message, or queue it behind the running turn. Resolves when the server has accepted it; if refused, the text returns to the composer. */
  async send({ text, files = [], model }: Outgoing): Promise<void> {
    const parts: Message['parts'] = [...files, ...(text ? [{ type: 'text' as const, text }] : [])];
    this.store.set({ notice: null });
    const messageId = generateId();
    try {
      await this.modeChange;
      const { status } = this.store.get();
      if (this.streaming || isLive(status) || status.waiting?.length) {
        await this.enqueue(messageId, parts, model);
        return;
      }
      try {
        const message: Message = { id: generateId(), role: 'user', parts };
        await this.prompt([...this.messages, message], 'submit-message', undefined, model);
      } catch (error) {
        if (!isProblem(error, 'run_in_flight') && !isProblem(error, 'waiting_for_human')) throw error;
        // Another window sent a message first.
        await this.enqueue(messageId, parts, model);
        await this.refresh();
      }
    } catch (error) {
      this.returnText(text, error);
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

  /** Replace a user message. Throws if the person cancels. */
  async edit(messageId: string, text: string, model?: string): Promise<void> {
    const choice = await chooseFiles(this, { kind: 'edit', messageId });
    if (choice === null) throw new Error('cancelled');
    // Only the text is replaced; the attached files are kept.
    await this.acting(async () => {
      // Ask the server whether a turn is running, since events may lag; if it has ended, wait until its stream is read.
      if (this.streaming) await this.askStatus();
      await this.modeChange;
      await this.whenStreamEnds();
      if (this.streaming) throw new Problem(409, 'run_in_flight', 'a turn is running');
      // The message may have received its server id while the edit was typed.
      const at = this.messages.findLastIndex((message) => message.id === messageId || message.metadata?.client_message_id === messageId);
      const old = this.messages[at];
      if (!old) throw new Error('the message that you are editing is no longer in this conversation');
      const parts: Message['parts'] = [...old.parts.filter((part) => part.type === 'file'), { type: 'text', text }];
      if (choice.files !== 'keep') {
        // Files go back before the new turn may change them: one request does both.
        const body = { message_id: old.id, mode: 'edit' as const, run: true, parts, ...bodyOf(model), ...filesBody(choice) };
        const { files } = await this.client.call('POST /api/sessions/{id}/rewind', { path: { id: this.id }, body });
        if (files) this.showRestored(files, null);
        void this.settle();
        return;
      }
      await this.prompt([...this.messages.slice(0, at), { id: old.id, role: 'user', parts }], 'submit-message', old.id, model);
    });
  }

  /** Regenerate an answer; `messageId` is that of the answer. */
  async regenerate(messageId: string, model?: string): Promise<void> {
    await this.acting(async () => {
      await this.modeChange;
      const at = this.messages.findIndex((message) => message.id === messageId);
      if (at < 0) throw new Error('the answer is no longer in this conversation');
      await this.prompt(this.messages.slice(0, at), 'regenerate-message', messageId, model);
    });
  }

  async abort(): Promise<void> {
    await this.acting(() => this.client.call('POST /api/sessions/{id}/abort', { path: { id: this.id } }));
  }

  /** Continue the newest turn where it stopped, or run its prompt again. */
  async continueTurn(mode: 'on' | 'again' = 'on'): Promise<void> {
    await this.acting(async () => {
      await this.modeChange;
      await this.client.call('POST /api/sessions/{id}/continue', { path: { id: this.id }, body: { mode } });
    });
  }

  /** Pause or resume the queue. */
  async pauseQueue(paused: boolean): Promise<void> {
    await this.acting(() => this.client.call('POST /api/sessions/{id}/queue/pause', { path: { id: this.id }, body: { paused } }));
  }

  /** Answer an approval request. `pattern` is one of the offered patterns: what the stored rule covers. */
  async decide(approvalId: string, decision: Decision, { reason, pattern }: { reason?: string; pattern?: string } = {}): Promise<void> {
    await this.acting(() =>
      this.client.call('POST /api/sessions/{id}/approvals/{approval_id}', {
        path: { id: this.id, approval_id: approvalId },
        body: { decision, ...(reason ? { reason } : {}), ...(pattern ? { pattern } : {}) },
      }),
    );
    void this.settle();
  }

  /** Give the same answer to those of the `seen` requests that are still pending. */
  async decideAll(decision: Decision, seen: readonly string[]): Promise<void> {
    const approval_ids = (this.store.get().status.waiting ?? []).flatMap((wait) => wait.approval_id ?? []).filter((id) => seen.includes(id));
    await this.acting(() => this.client.call('POST /api/sessions/{id}/approvals', { path: { id: this.id }, body: { decision, approval_ids } }));
    void this.settle();
  }

  /** Set the permission mode. */
  async setMode(mode: Mode): Promise<void> {
    // Update optimistically; if the server refuses, the next refresh reverts it.
    this.store.set(({ session }) => ({ session: session && { ...session, mode } }));
    const change = this.acting(async () => void (await this.client.call('PATCH /api/sessions/{id}', { path: { id: this.id }, body: { mode } })));
    this.modeChange = change;
    try {
      await change;
    } finally {
      if (this.modeChange === change) this.modeChange = null;
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

  /** Rewind to before a user message and return its text to the composer; or restore the files of that time, as the person chooses. */
  async rewind(messageId: string): Promise<void> {
    const choice = await chooseFiles(this, { kind: 'rewind', messageId });
    if (choice === null) return;
    this.store.set({ restoring: choice.files !== 'keep' });
    await this.acting(async () => {
      const moved = await this.client.call('POST /api/sessions/{id}/rewind', {
        path: { id: this.id },
        body: { message_id: messageId, mode: 'edit', ...filesBody(choice) },
      });
      if (moved.draft && choice.files !== 'only') this.fillComposer(moved.draft);
      if (moved.files) this.showRestored(moved.files, choice.files === 'only' ? 'only' : 'restore');
    });
    await this.settle();
  }

  /** Undo the last rewind, or move the head to `tip`, the end of the undone turns. Files follow as the person chooses. */
  async unrewind(tip?: string): Promise<void> {
    const move: Move = tip === undefined ? { kind: 'unrewind' } : { kind: 'goto', turnId: tip };
    const choice = await chooseFiles(this, move);
    if (choice !== null) await this.moveTo(tip, choice);
  }

  /** Show another version; the files stay as they are. */
  async showVersion(tip: string): Promise<void> {
    await this.moveTo(tip, KEEP);
  }

  private async moveTo(tip: string | undefined, choice: FilesChoice): Promise<void> {
    const shown = new Set(this.userTexts());
    this.store.set({ restoring: choice.files !== 'keep' });
    await this.acting(async () => {
      const path = { id: this.id };
      const moved =
        tip === undefined
          ? await this.client.call('POST /api/sessions/{id}/unrewind', { path, body: filesBody(choice) })
          : await this.client.call('POST /api/sessions/{id}/head', { path, body: { turn_id: tip, ...filesBody(choice) } });
      if (moved.files) this.showRestored(moved.files, 'only');
    });
    await this.settle();
    if (choice.files === 'only') return;
    // The rewind put a text into the composer; remove it, since its message is restored.
    const restored = this.userTexts().filter((text) => !shown.has(text));
    if (restored.length > 0) this.fillComposer('', restored);
  }

  async goTo(turnId: string): Promise<void> {
    await this.unrewind(turnId);
  }

  /** Take back what the session changed in a file, or one hunk of it. */
  async revert(path: string, change: { hunk?: string; turn?: string; force?: boolean }): Promise<void> {
    const body = { path, ...(change.hunk && { hunk: change.hunk }), ...(change.turn && { turn_id: change.turn }), ...(change.force && { force: true }) };
    const files = await this.client.call('POST /api/sessions/{id}/changes/revert', { path: { id: this.id }, body });
    this.store.set({ notice: null });
    this.showRestored(files, 'only');
  }

  /** Say which files were restored, with Undo: of the rewind and its files, or of the files alone. */
  private showRestored(files: FilesRestored, undo: 'restore' | 'only' | null): void {
    const action = { label: 'Undo', run: () => this.moveTo(undefined, { files: undo ?? 'keep', paths: [] }).catch(() => undefined) };
    this.store.set(({ filesVersion }) => ({
      filesVersion: filesVersion + 1,
      notice: { text: restoredText(files), bad: false, ...(undo !== null && files.restored.length > 0 && { action }) },
    }));
  }

  /** Create a session that is a copy up to this message. */
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
      if (!done.compacted) this.notify('Nothing to compact yet.');
    });
    await this.settle();
  }

  async prune(): Promise<void> {
    await this.acting(async () => {
      const done = await this.client.call('POST /api/sessions/{id}/prune', { path: { id: this.id } });
      if (!done.compacted) this.notify('No older tool outputs to prune.');
    });
    await this.settle();
  }

  async cancelQueued(messageId: string): Promise<void> {
    await this.acting(() =>
      this.client.call('DELETE /api/sessions/{id}/queue/{message_id}', { path: { id: this.id, message_id: messageId } }),
    );
    void this.refreshQueue();
  }

  /** Change the text of a queued message; its files and position are kept. */
  async editQueued(messageId: string, text: string): Promise<void> {
    await this.acting(() => this.client.call('PATCH /api/sessions/{id}/queue/{message_id}', { path: { id: this.id, message_id: messageId }, body: { text } }));
    void this.refreshQueue();
  }

  /** Move a queued message before another one, or to the end. */
  async moveQueued(messageId: string, before: string | null): Promise<void> {
    await this.acting(() => this.client.call('POST /api/sessions/{id}/queue/{message_id}/move', { path: { id: this.id, message_id: messageId }, body: { before } }));
    void this.refreshQueue();
  }

  /** Send a queued message now, interrupting the running turn. */
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
  fillComposer(text: string, instead?: string[]): void {
    this.drafts += 1;
    this.store.set({ draft: { text, seq: this.drafts, instead } });
  }

  private userTexts(): string[] {
    return this.messages.filter((message) => message.role === 'user').map(textOf);
  }

  /** Show a notice; null removes it. */
  notify(text: string | null): void {
    this.store.set({ notice: text === null ? null : { text, bad: false } });
  }

  /** Show an error. */
  notifyError(text: string): void {
    this.store.set({ notice: { text, bad: true } });
  }

  /** Return the newest user message, for Up in an empty composer. */
  lastUserMessage(): { id: string; text: string } | null {
    const message = this.messages.findLast((candidate) => candidate.role === 'user' && !candidate.metadata?.synthetic);
    return message ? { id: message.id, text: textOf(message) } : null;
  }

  /** Show these messages and send the newest one; the server has the others. Resolves when the server has accepted it. */
  private async prompt(messages: Message[], trigger: 'submit-message' | 'regenerate-message', messageId?: string, model?: string): Promise<void> {
    this.store.set({ messages });
    await this.stream.send({ ...bodyOf(model), id: this.id, trigger, messageId, messages: messages.slice(-1) });
  }

  private async acting<T>(act: () => Promise<T>): Promise<T> {
    this.store.set({ notice: null });
    try {
      return await act();
    } catch (error) {
      this.fail(error);
      throw error;
    } finally {
      this.store.set({ restoring: false });
    }
  }

  private returnText(text: string, error: unknown): void {
    if (text) this.fillComposer(text);
    this.fail(error);
    void this.settle();
  }
}

function bodyOf(model?: string): Record<string, unknown> {
  return model ? { model } : {};
}
