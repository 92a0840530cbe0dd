/** What the page knows of an open session, besides its messages. */

import type { FailureWords } from '../api/failure';
import type { ContextReport, Message, Session, Status, TreeView } from '../api/types';
import type { Standing } from '../ui/standing';

export interface Focus {
  messageId: string;
  /** A new number each time, so that the same message can be gone to twice. */
  asked: number;
  /** Where the reader was when it was asked for. */
  from: Standing;
}

/** A text for the composer. With `instead` it replaces what is there, if that is one of these; else it is put before it. */
export interface Offer {
  text: string;
  asked: number;
  instead?: string[];
}

export interface ConversationState {
  session: Session | null;
  /** Deleted, or never there. */
  missing: boolean;
  /** Whether the end of the session has been read. */
  loaded: boolean;
  /** Why the end could not be read. */
  failed: FailureWords | null;
  /** Whether there is more before the first message that was read. */
  older: boolean;
  loadingOlder: boolean;
  status: Status;
  queue: Message[];
  context: ContextReport | null;
  tree: TreeView | null;
  /** The model that is picked for the next message, where it is not the session's own. */
  picked: string | null;
  /** The newest refusal, for people; or what was found not to be needed. */
  notice: { text: string; bad: boolean; said?: string } | null;
  focus: Focus | null;
  /** A text for the composer: what a rewind handed back, or what could not be sent. */
  draft: Offer | null;
}

export const INITIAL_STATE: ConversationState = {
  session: null,
  missing: false,
  loaded: false,
  failed: null,
  older: false,
  loadingOlder: false,
  status: { state: 'idle' } as Status,
  queue: [],
  context: null,
  tree: null,
  picked: null,
  notice: null,
  focus: null,
  draft: null,
};
