/** The host: the connection, the lists of sessions and models, and the open conversations. */

import { createContext, useContext } from 'react';
import { Client } from '../api/client';
import type { HostEvent } from '../api/events';
import { errorText, Unreachable } from '../api/problem';
import type { SavedPrompt, ServerShape } from '@clew/client';
import { SharedFeed } from '../api/shared_feed';
import type { ModelListing, Session, Status } from '../api/types';
import { Conversation, type Mode } from './conversation';
import { Store } from './store';

export interface HostState {
  /** Null until the first response. */
  online: boolean | null;
  /** The server rejected the token. */
  unauthorized: boolean;
  sessions: Session[];
  /** Whether the list has been loaded. */
  listed: boolean;
  nextCursor: string | null;
  archived: boolean;
  ephemeral: boolean;
  models: ModelListing[];
  prompts: readonly SavedPrompt[];
  server: ServerShape | null;
  notice: string | null;
}

const PAGE = 100;

export class Host {
  readonly store = new Store<HostState>({
    online: null,
    unauthorized: false,
    sessions: [],
    listed: false,
    nextCursor: null,
    archived: false,
    ephemeral: false,
    models: [],
    prompts: [],
    server: null,
    notice: null,
  });
  private readonly feed: SharedFeed;
  private connections = 0;
  private readonly open = new Map<string, { conversation: Conversation; users: number }>();
  /** List requests in flight, each with the session changes since it was sent. */
  private readonly lists = new Set<(() => void)[]>();
  private readonly refetchTimers = new Map<string, ReturnType<typeof setTimeout>>();

  constructor(readonly client: Client) {
    client.onUnauthorized = () => this.store.set({ unauthorized: true });
    this.feed = new SharedFeed(client, { event: (event) => this.onEvent(event), online: (online) => this.onOnline(online) });
  }

  start(): void {
    this.feed.start();
  }

  stop(): void {
    this.feed.stop();
    for (const timer of this.refetchTimers.values()) clearTimeout(timer);
    for (const { conversation } of this.open.values()) conversation.close();
    this.open.clear();
  }

  retryNow(): void {
    this.feed.retryNow();
  }

  // ----------------------------------------------------------------- sessions

  async loadSessions(more = false): Promise<void> {
    const { archived, ephemeral, nextCursor } = this.store.get();
    const missed: (() => void)[] = [];
    this.lists.add(missed);
    await this.reportingErrors(async () => {
      const shown = { kind: 'chat', archived, ephemeral } as const;
      // Pinned sessions are at the top, however old they are.
      const [page, pinned] = await Promise.all([
        this.client.call('GET /api/sessions', { query: { ...shown, limit: PAGE, ...(more && nextCursor ? { cursor: nextCursor } : {}) } }),
        more ? null : this.client.call('GET /api/sessions', { query: { ...shown, limit: PAGE, pinned: true } }),
      ]);
      const now = this.store.get();
      // The filter has changed since.
      if (now.archived !== archived || now.ephemeral !== ephemeral) return;
      this.store.set({
        sessions: more ? merge(now.sessions, page.sessions) : merge(page.sessions, pinned?.sessions ?? []),
        nextCursor: page.next_cursor,
        listed: true,
      });
      for (const change of missed) change();
    }).finally(() => this.lists.delete(missed));
  }

  async show(filter: { archived?: boolean; ephemeral?: boolean }): Promise<void> {
    this.store.set(filter);
    await this.loadSessions();
  }

  async create(options: { folder?: string | null; agent?: string | null; mode?: Mode } = {}): Promise<Session> {
    return this.reportingErrors(async () => {
      // The default folder comes from the server; wait for it if it is not loaded yet.
      const server = this.store.get().server ?? (await this.client.call('GET /api/server', {}));
      const folder = options.folder || server.workspace_root;
      const session = await this.client.call('POST /api/sessions', {
        body: {
          ...(options.agent ? { agent: options.agent } : {}),
          ...(options.mode && options.mode !== 'ask' ? { mode: options.mode } : {}),
          ...(folder ? { workspace_root: folder } : {}),
          // The JSON store requires these fields; the page does not ask for them.
          ...(server?.store === 'json' ? { metadata: { workerId: 'local', workspaceId: folder ?? 'local' } } : {}),
        },
      });
      this.put(session);
      return session;
    });
  }

  async rename(id: string, title: string): Promise<void> {
    await this.reportingErrors(async () => this.put(await this.client.call('PATCH /api/sessions/{id}', { path: { id }, body: { title } })));
  }

  async archive(id: string, archived: boolean): Promise<void> {
    await this.reportingErrors(async () => this.put(await this.client.call('PATCH /api/sessions/{id}', { path: { id }, body: { archived } })));
  }

  async pin(id: string, pinned: boolean): Promise<void> {
    await this.reportingErrors(async () => this.put(await this.client.call('PATCH /api/sessions/{id}', { path: { id }, body: { pinned } })));
  }

  /** Archive or unarchive sessions one by one. Throws at the first failure, which the notice shows. */
  async archiveAll(ids: readonly string[], archived: boolean): Promise<string[]> {
    const done: string[] = [];
    for (const id of ids) {
      await this.archive(id, archived);
      done.push(id);
    }
    return done;
  }

  async loadPrompts(): Promise<void> {
    await this.reportingErrors(async () => this.store.set({ prompts: (await this.client.call('GET /api/prompts', {})).prompts }));
  }

  async loadModels(): Promise<void> {
    await this.reportingErrors(async () => this.store.set({ models: [...(await this.client.call('GET /api/models', {})).models] }));
  }

  async remove(id: string): Promise<void> {
    await this.reportingErrors(async () => {
      await this.client.call('DELETE /api/sessions/{id}', { path: { id }, query: { force: true } });
      this.drop(id);
    });
  }

  async loadExamples(): Promise<Session[]> {
    return this.reportingErrors(async () => {
      const { sessions } = await this.client.call('POST /api/examples', {});
      await this.loadSessions();
      return [...sessions];
    });
  }

  session(id: string): Session | undefined {
    return this.store.get().sessions.find((session) => session.id === id);
  }

  // ------------------------------------------------------------ conversations

  /** Return the conversation if it is open. */
  opened(id: string): Conversation | null {
    return this.open.get(id)?.conversation ?? null;
  }

  /** Open a conversation, which is shared by all panes. Each `acquire` needs a `release`. */
  acquire(id: string): Conversation {
    const known = this.open.get(id);
    if (known) {
      known.users += 1;
      return known.conversation;
    }
    const conversation = new Conversation(id, this.client);
    this.open.set(id, { conversation, users: 1 });
    void conversation.open();
    return conversation;
  }

  release(id: string): void {
    const known = this.open.get(id);
    if (!known) return;
    known.users -= 1;
    if (known.users > 0) return;
    this.open.delete(id);
    known.conversation.close();
  }

  // ------------------------------------------------------------------- events

  private onOnline(online: boolean): void {
    this.store.set({ online });
    if (!online) return;
    this.connections += 1;
    void this.loadSessions().catch(() => undefined);
    void this.loadAbout();
    // After a reconnect events may be missing, so reload all. Before the first connection only status events can be missing.
    for (const { conversation } of this.open.values()) {
      if (this.connections > 1 || conversation.store.get().failed) void conversation.onBack();
      else void conversation.onFirstConnection();
    }
  }

  private async loadAbout(): Promise<void> {
    // Independently: one may fail without the others.
    await Promise.allSettled([
      this.reportingErrors(async () => this.store.set({ server: await this.client.call('GET /api/server', {}) })),
      this.loadModels(),
      this.loadPrompts(),
    ]);
  }

  private onEvent(event: HostEvent): void {
    const id = event.session_id;
    if (!id) return;
    this.open.get(id)?.conversation.onEvent(event);
    if (event.type === 'session_deleted') this.drop(id);
    else if (event.type === 'status') this.patch(id, { status: event.status as Status });
    else if (event.type === 'session_created' || event.type === 'session_updated' || event.type === 'turn_finished') this.refetch(id);
  }

  /** Refetch a session, once per burst of events. */
  refetch(id: string): void {
    if (this.refetchTimers.has(id)) return;
    const timer = setTimeout(() => {
      this.refetchTimers.delete(id);
      this.client.call('GET /api/sessions/{id}', { path: { id } }).then(
        (session) => this.put(session),
        () => undefined, // Deleted, or the server is unreachable; a later event or connection updates it.
      );
    }, 80);
    this.refetchTimers.set(id, timer);
  }

  private put(session: Session): void {
    this.change(() => {
      const { sessions, archived, ephemeral } = this.store.get();
      const shown =
        session.kind === 'chat' &&
        (archived || session.archived_at === null) &&
        (ephemeral || session.metadata.ephemeral !== true);
      this.store.set({ sessions: shown ? merge(sessions, [session]) : sessions.filter((other) => other.id !== session.id) });
    });
  }

  private patch(id: string, change: Partial<Session>): void {
    this.change(() =>
      this.store.set(({ sessions }) => ({
        sessions: sessions.map((session) => (session.id === id ? { ...session, ...change } : session)),
      })),
    );
  }

  private drop(id: string): void {
    this.change(() => this.store.set(({ sessions }) => ({ sessions: sessions.filter((session) => session.id !== id) })));
  }

  /** Apply a change, and apply it again to lists that were requested before it. */
  private change(make: () => void): void {
    make();
    for (const missed of this.lists) missed.push(make);
  }

  private async reportingErrors<T>(act: () => Promise<T>): Promise<T> {
    this.store.set({ notice: null });
    try {
      return await act();
    } catch (error) {
      if (!(error instanceof Unreachable)) this.store.set({ notice: errorText(error) });
      throw error;
    }
  }
}

/** Merge two lists, newest first, without duplicates. */
export function merge(sessions: readonly Session[], changed: readonly Session[]): Session[] {
  const byId = new Map(sessions.map((session) => [session.id, session]));
  for (const session of changed) byId.set(session.id, session);
  return [...byId.values()].sort((a, b) => b.updated_at - a.updated_at || (a.id < b.id ? -1 : 1));
}

export const HostContext = createContext<Host | null>(null);

export function useHost(): Host {
  const host = useContext(HostContext);
  if (!host) throw new Error('this component must be rendered inside a host');
  return host;
}
