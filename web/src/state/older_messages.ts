/** Loads messages before the first loaded one. */

import { Problem } from '../api/problem';
import { markActivity } from '../ui/user_activity';
import { shared } from './refetch';
import { asMessage, type SessionBase } from './session_base';
import type { TreeReader } from './tree_reader';

const PAGE = 200;
/** The largest page the server allows, for loading far back. */
const MAX_PAGE = 500;
/** Attempts for a page that does not connect to the loaded messages. */
const MAX_TRIES = 5;

export class OlderMessages {
  private reveals = 0;

  constructor(
    private readonly session: SessionBase,
    private readonly tree: TreeReader,
    private readonly whenLoaded: () => Promise<void>,
  ) {}

  load(limit = PAGE): Promise<void> {
    return this.read(limit);
  }

  private readonly read = shared(async (limit: number) => {
    const { client, id, store } = this.session;
    const first = this.session.messages[0];
    if (!store.get().older || !first) return;
    store.set({ loadingOlder: true });
    try {
      const page = await client.call('GET /api/sessions/{id}/messages', { path: { id }, query: { limit, before: first.id } });
      const messages = page.messages.map(asMessage);
      // Load the tree first, so that no banner is inserted between visible messages later.
      await this.session.ignoringErrors(() => this.tree.fill(messages));
      // A refresh may have changed the first message; then this page does not connect.
      if (this.session.messages[0]?.id === first.id) {
        store.set(({ messages: loaded }) => ({ messages: [...messages, ...loaded], older: messages.length === limit }));
      }
    } catch (error) {
      this.session.fail(error);
    } finally {
      store.set({ loadingOlder: false });
    }
  });

  /** Load all messages back to the first one. */
  async loadAll(): Promise<void> {
    while (this.session.store.get().older && !this.session.closed) {
      if (!(await this.loadFar())) break;
    }
  }

  /** Load pages until the message is found, then scroll to it. */
  async reveal(messageId: string): Promise<void> {
    const { session } = this;
    const from = markActivity();
    const here = () => session.messages.some((message) => message.id === messageId || message.metadata?.client_message_id === messageId);
    if (!session.store.get().tree) await this.tree.refresh();
    const exists = here() || (await this.isOnPath(messageId));
    await this.whenLoaded();
    // Retry a page that did not connect because of a refresh.
    for (let tries = 0; exists && !here() && session.store.get().older && !session.closed && tries < MAX_TRIES; tries += 1) {
      if (await this.loadFar()) tries = -1;
    }
    this.reveals += 1;
    session.store.set({ focus: { messageId, seq: this.reveals, from } });
  }

  /** Load a large page and return whether it brought messages. */
  private async loadFar(): Promise<boolean> {
    const before = this.session.messages.length;
    await this.load(MAX_PAGE);
    return this.session.messages.length !== before;
  }

  /** Whether a message is on the current path, however far back. Uses the tree as far as it is loaded. */
  private async isOnPath(messageId: string): Promise<boolean> {
    const { client, id, store } = this.session;
    const { tree } = store.get();
    const holder = tree?.turns.find((turn) => turn.messages.includes(messageId));
    if (holder) return holder.on_line;
    if (tree && tree.next_cursor == null) return false;
    try {
      await client.call('GET /api/sessions/{id}/messages', { path: { id }, query: { limit: 1, before: messageId } });
      return true;
    } catch (error) {
      if (error instanceof Problem && error.code === 'message_not_found') return false;
      throw error;
    }
  }
}
