/** What is compared: two lines of a session, or a session with a branch of it. */

import type { Message } from '../api/types';
import type { Client } from '../api/client';
import { versionsIn } from '../state/rewound';
import type { Conversation } from '../state/conversation';
import { isSummary } from '../state/timeline';
import { view } from '../state/view';

/** A line, by the turns it goes on with, or by the session whose end it is. */
export interface Side {
  name: string;
  turns?: string[];
  session?: string;
}

/** So much of each is read: what is compared is looked at, and the inspector has the rest. */
const MOST_TURNS = 40;
const MOST_MESSAGES = 500;

export async function readSide(client: Client, { turns, session }: Side): Promise<Message[]> {
  const pages = turns
    ? await Promise.all(turns.slice(0, MOST_TURNS).map((id) => client.call('GET /api/turns/{id}/messages', { path: { id } })))
    : [await client.call('GET /api/sessions/{id}/messages', { path: { id: session! }, query: { limit: MOST_MESSAGES } })];
  return (pages.flatMap((page) => page.messages) as unknown as Message[]).filter((message) => !isSummary(message));
}

/** Open the versions of a message: the one on the line, beside another. Says whether there is another. */
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
