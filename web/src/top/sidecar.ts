/** Branches of where the conversation stands: one to go on in, one to ask in beside it. */

import type { Message, Session } from '../api/types';
import type { Conversation } from '../state/conversation';
import { goTo, parseRoute } from '../state/route';

/** The newest message that is finished: what is being written cannot be branched from yet. */
export function newestSettled(messages: readonly Message[], openTurn: string | null): string | null {
  const settled = messages.findLast((message) => message.metadata?.turn_id !== undefined && message.metadata.turn_id !== openTurn);
  return settled?.id ?? null;
}

export async function branchHere(conversation: Conversation, options: { title?: string; ephemeral?: boolean } = {}): Promise<Session | null> {
  // Which turn is open may have changed since the tree was read.
  await conversation.refreshTree();
  const from = newestSettled(conversation.chat.messages, conversation.store.get().tree?.open_turn_id ?? null);
  if (from === null) {
    conversation.say('There is nothing to branch from yet. Send a message first.');
    return null;
  }
  return conversation.branch(from, options);
}

/** The sidecar that was just opened, whose composer is to be typed in. */
let fresh: string | null = null;

export function takeFresh(id: string): boolean {
  const is = fresh === id;
  if (is) fresh = null;
  return is;
}

export async function openSidecar(conversation: Conversation): Promise<void> {
  const title = conversation.store.get().session?.title;
  const session = await branchHere(conversation, { ephemeral: true, title: title ? `Sidecar of ${title}` : 'Sidecar' });
  if (!session) return;
  fresh = session.id;
  goTo({ session: parseRoute(window.location.hash).session ?? conversation.id, beside: session.id });
}
