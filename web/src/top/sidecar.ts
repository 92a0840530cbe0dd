/** Branches from the current end of the conversation, to continue in or as a sidecar. */

import type { Message, Session } from '../api/types';
import type { Conversation } from '../state/conversation';
import { goTo, parseRoute } from '../state/route';

/** Return the newest finished message: a streaming one cannot be branched from yet. */
export function newestFinished(messages: readonly Message[], openTurn: string | null): string | null {
  const settled = messages.findLast((message) => message.metadata?.turn_id !== undefined && message.metadata.turn_id !== openTurn);
  return settled?.id ?? null;
}

export async function branchHere(conversation: Conversation, options: { title?: string; ephemeral?: boolean } = {}): Promise<Session | null> {
  // The open turn may have changed since the tree was loaded.
  await conversation.tree.refresh();
  const from = newestFinished(conversation.messages, conversation.store.get().tree?.open_turn_id ?? null);
  if (from === null) {
    conversation.notify('Nothing to branch from yet. Send a message first.');
    return null;
  }
  return conversation.branch(from, options);
}

/** The sidecar that was just opened, whose composer takes the focus. */
let newSidecar: string | null = null;

export function consumeNewSidecar(id: string): boolean {
  const is = newSidecar === id;
  if (is) newSidecar = null;
  return is;
}

export async function openSidecar(conversation: Conversation): Promise<void> {
  const title = conversation.store.get().session?.title;
  const session = await branchHere(conversation, { ephemeral: true, title: title ? `Sidecar of ${title}` : 'Sidecar' });
  if (!session) return;
  newSidecar = session.id;
  goTo({ session: parseRoute(window.location.hash).session ?? conversation.id, side: session.id });
}
