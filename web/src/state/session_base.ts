/** The base of an open session: its state on the page, and how errors are shown. */

import type { Client } from '../api/client';
import { describeError, Problem, Unreachable } from '../api/problem';
import type { Message, StoredMessage } from '../api/types';
import { type ConversationState, INITIAL_STATE } from './conversation_state';
import { Store } from './store';

export class SessionBase {
  readonly store = new Store<ConversationState>(INITIAL_STATE);
  closed = false;

  constructor(
    readonly id: string,
    readonly client: Client,
  ) {}

  get messages(): Message[] {
    return this.store.get().messages;
  }

  fail(error: unknown): void {
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

  async ignoringErrors(read: () => Promise<void>): Promise<void> {
    try {
      await read();
    } catch (error) {
      if (error instanceof Problem && error.code === 'session_not_found') this.store.set({ missing: true });
    }
  }
}

export function asMessage(stored: StoredMessage): Message {
  return stored as unknown as Message;
}
