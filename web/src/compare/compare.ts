/** Comparing two versions of a session, or a session with one of its branches. */

import type { Message } from '../api/types';
import type { Client } from '../api/client';
import { versionsIn } from '../state/rewound';
import type { Conversation } from '../state/conversation';
import { isSummary } from '../state/timeline';
import { view } from '../state/view';

/** One side of a comparison: a list of turns, or a session. */
export interface Side {
  name: string;
  turns?: string[];
  session?: string;
}

/** Limits per side; the inspector shows the rest. */
const MAX_TURNS = 40;
const MAX_MESSAGES = 500;

export async function readSide(client: Client, { turns, session }: Side): Promise<Message[]> {
  const pages = turns
    ? await Promise.all(turns.slice(0, MAX_TURNS).map((id) => client.call('GET /api/turns/{id}/messages', { path: { id } })))
    : [await client.call('GET /api/sessions/{id}/messages', { path: { id: session! }, query: { limit: MAX_MESSAGES } })];
  return (pages.flatMap((page) => page.messages) as unknown as Message[]).filter((message) => !isSummary(message));
}

/** Open the current version of a message next to another one. Returns false if there is no other. */
export function compareVersions(conversation: Conversation, messageId: string, with_?: number): boolean {
  const { tree } = conversation.store.get();
  const versions = versionsIn(tree).get(messageId);
  if (!tree || !versions) return false;
  const parents = new Map(tree.turns.map((turn) => [turn.id, turn.parent_turn_id]));
  const sides = versions.roots.map((root, index): Side => {
    const turns: string[] = [];
    for (let at: string | null | undefined = versions.tips[index]; at; at = parents.get(at)) {
      turns.unshift(at);
      if (at === root) break;
    }
    return { name: `Version ${index + 1}`, turns };
  });
  const other = with_ ?? (versions.at === 0 ? 1 : versions.at - 1);
  if (!sides[other] || other === versions.at) return false;
  view.set({ compared: { sides, shown: [other, versions.at] } });
  return true;
}

export function compareSessions(left: Side, right: Side): void {
  view.set({ compared: { sides: [left, right], shown: [0, 1] } });
}
