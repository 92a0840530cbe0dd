/** The state of an open session. */

import type { FailureText } from '../api/failure';
import type { ContextReport, Message, Session, Status, TreeView } from '../api/types';
import type { RestoreQuestion } from '../files/choose_files';
import type { ActivityMark } from '../ui/user_activity';
import type { StreamState } from './session_stream';

export interface Focus {
  messageId: string;
  /** Increases with each request, so that the same message can be requested twice. */
  seq: number;
  /** The reader's activity at the time of the request. */
  from: ActivityMark;
}

/** A text for the composer. With `instead` it replaces the current text if that is one of these; otherwise it is put before it. */
export interface Offer {
  text: string;
  seq: number;
  instead?: string[];
}

export interface ConversationState {
  session: Session | null;
  /** The session does not exist. */
  missing: boolean;
  /** Whether the newest messages have been loaded. */
  loaded: boolean;
  /** The reason why they could not be loaded. */
  failed: FailureText | null;
  messages: Message[];
  stream: StreamState;
  /** Whether there are messages before the first loaded one. */
  older: boolean;
  loadingOlder: boolean;
  status: Status;
  queue: Message[];
  context: ContextReport | null;
  tree: TreeView | null;
  /** The model chosen for the next message, if it is not the session's own. */
  picked: string | null;
  /** The newest error or notice. */
  notice: { text: string; bad: boolean; details?: string; action?: { label: string; run: () => void } } | null;
  /** The question about files, before the conversation moves. */
  question: RestoreQuestion | null;
  /** This page is restoring files; until it is done, they are neither the old nor the new ones. */
  restoring: boolean;
  /** Increases when this page has restored files. */
  filesVersion: number;
  focus: Focus | null;
  /** A text for the composer: returned by a rewind, or not sent. */
  draft: Offer | null;
}

export const INITIAL_STATE: ConversationState = {
  session: null,
  missing: false,
  loaded: false,
  failed: null,
  messages: [],
  stream: 'idle',
  older: false,
  loadingOlder: false,
  status: { state: 'idle' } as Status,
  queue: [],
  context: null,
  tree: null,
  picked: null,
  notice: null,
  question: null,
  restoring: false,
  filesVersion: 0,
  focus: null,
  draft: null,
};
