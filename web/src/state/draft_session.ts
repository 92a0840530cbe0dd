/** The conversation of the start page: its session is created with the first message. */

import type { Session } from '../api/types';
import { Conversation, type Mode, type Outgoing } from './conversation';
import type { Host } from './host';
import { goTo } from './route';

/** The id under which this browser stores its draft and model. */
export const DRAFT_ID = 'new';

export interface DraftOptions {
  /** The workspace; null is the server's folder. */
  folder: string | null;
  agent: string | null;
}

export class DraftSession extends Conversation {
  private options: DraftOptions = { folder: null, agent: null };

  constructor(private readonly host: Host) {
    super(DRAFT_ID, host.client);
    this.store.set({ loaded: true });
  }

  /** Show a model before the session exists. */
  setModel(model: Session['model']): void {
    this.store.set(({ session }) => ({ session: { ...(session ?? { mode: 'ask' }), model } as Session }));
  }

  setOptions(options: Partial<DraftOptions>): void {
    this.options = { ...this.options, ...options };
    this.store.set(({ session }) => ({ session: { ...session, workspace_root: this.options.folder } as Session }));
  }

  override async setMode(mode: Mode): Promise<void> {
    this.store.set(({ session }) => ({ session: { ...session, mode } as Session }));
  }

  override async send(outgoing: Outgoing): Promise<void> {
    this.notify(null);
    const { session } = this.store.get();
    let created: Session;
    try {
      created = await this.host.create({ ...this.options, mode: (session?.mode as Mode | undefined) ?? 'ask' });
    } catch (error) {
      // The host shows the error.
      if (outgoing.text) this.fillComposer(outgoing.text);
      throw error;
    }
    const conversation = this.host.acquire(created.id);
    outgoing.onCreated?.(conversation);
    goTo({ session: created.id });
    // Errors are shown, and the text returned, in the new session, which the page shows now.
    await conversation.send(outgoing).catch(() => undefined);
    this.host.release(created.id);
  }
}
