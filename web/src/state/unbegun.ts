/** A conversation in which nothing was said yet: no session is made before there is something to keep in it. */

import type { Session } from '../api/types';
import { Conversation, type Mode, type Outgoing } from './conversation';
import type { Host } from './host';
import { goTo } from './route';

/** Names what is typed and picked for it in this browser. */
export const UNBEGUN = 'new';

export interface Wishes {
  /** Where it works; the server's own folder where nothing is said. */
  folder: string | null;
  agent: string | null;
}

export class Unbegun extends Conversation {
  private wishes: Wishes = { folder: null, agent: null };

  constructor(private readonly host: Host) {
    super(UNBEGUN, host.client);
    this.store.set({ loaded: true });
  }

  /** What is known of the session before it is there: who would answer, and how freely. */
  expect(model: Session['model']): void {
    this.store.set(({ session }) => ({ session: { ...(session ?? { mode: 'ask' }), model } as Session }));
  }

  wish(wishes: Partial<Wishes>): void {
    this.wishes = { ...this.wishes, ...wishes };
    this.store.set(({ session }) => ({ session: { ...session, workspace_root: this.wishes.folder } as Session }));
  }

  override async setMode(mode: Mode): Promise<void> {
    this.store.set(({ session }) => ({ session: { ...session, mode } as Session }));
  }

  override async send(outgoing: Outgoing): Promise<void> {
    this.say(null);
    const { session } = this.store.get();
    let begun: Session;
    try {
      begun = await this.host.create({ ...this.wishes, mode: (session?.mode as Mode | undefined) ?? 'ask' });
    } catch (error) {
      // The host has said why.
      if (outgoing.text) this.offer(outgoing.text);
      throw error;
    }
    const conversation = this.host.hold(begun.id);
    outgoing.onBegun?.(conversation);
    goTo({ session: begun.id });
    // A refusal is said, and the text handed back, where it was to be said: the page is there now.
    await conversation.send(outgoing).catch(() => undefined);
    this.host.release(begun.id);
  }
}
