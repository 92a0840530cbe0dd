/** Reads the tree of turns: the newest page with every change, older ones on demand. */

import type { Message, TreeView } from '../api/types';
import { shared } from './refetch';
import type { SessionBase } from './session_base';
import { joinTree } from './tree_pages';

/** Turns loaded with every change: more than a page of messages has. */
const PAGE = 100;
/** The largest page the server allows, for loading far back. */
const OLDER_PAGE = 500;

export class TreeReader {
  private requests = 0;
  /** The request that is shown: a late response does not replace a newer one. */
  private shown = 0;

  constructor(private readonly session: SessionBase) {}

  /** Return a function that gives the tree to show, once the newest page is loaded. */
  async read(): Promise<() => { tree?: TreeView }> {
    const request = (this.requests += 1);
    const { client, id, store } = this.session;
    const page = await client.call('GET /api/sessions/{id}/tree', { path: { id }, query: { limit: PAGE } });
    return () => {
      if (request < this.shown) return {};
      this.shown = request;
      return { tree: joinTree(store.get().tree, page) };
    };
  }

  async refresh(): Promise<void> {
    await this.session.ignoringErrors(async () => {
      const newest = await this.read();
      this.session.store.set(newest());
      await this.fill();
    });
  }

  readonly loadOlder = shared(async () => {
    const { client, id, store } = this.session;
    const cursor = store.get().tree?.next_cursor;
    if (cursor == null) return;
    const page = await client.call('GET /api/sessions/{id}/tree', { path: { id }, query: { limit: OLDER_PAGE, cursor } });
    const { tree } = store.get();
    // The known tree may have been replaced meanwhile; then this page does not connect.
    if (tree?.next_cursor === cursor) store.set({ tree: joinTree(tree, page, true) });
  });

  /** Load the tree as far back as the messages. Rewound turns are newer than the turn they left. */
  async fill(messages: readonly Message[] = this.session.messages): Promise<void> {
    const nextCursor = () => this.session.store.get().tree?.next_cursor;
    const behind = () => {
      const turns = messages.slice(0, 4).flatMap((message) => message.metadata?.turn_id ?? []);
      const cursor = nextCursor();
      return cursor != null && turns.some((turn) => turn <= cursor);
    };
    while (behind() && !this.session.closed) {
      const before = nextCursor();
      await this.loadOlder();
      if (nextCursor() === before) break;
    }
  }
}
