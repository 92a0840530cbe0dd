/** The server's values under the names the page uses. */

import type { UIMessage } from 'ai';
import type {
  ContextReport,
  Message as StoredMessage,
  Model,
  ModelListing,
  ReflogEntry,
  SearchHit,
  SessionShape,
  Status,
  TouchedFile,
  TreeTurn,
  TreeView,
  TurnReport,
} from '@clew/client';

export type Session = SessionShape;
export type { ContextReport, Model, ModelListing, ReflogEntry, SearchHit, Status, StoredMessage, TouchedFile, TreeTurn, TreeView, TurnReport };

export interface Usage {
  input: number;
  output: number;
  reasoning: number;
  cache_read: number;
  cache_write: number;
  /** The provider did not say all of it. */
  estimated?: boolean;
}

/** What the server tells about a message beside its parts. All of it may be missing on one that was just typed. */
export interface Metadata {
  turn_id?: string;
  created_at?: number;
  model?: Model;
  usage?: Usage;
  agent?: string;
  hidden_at?: number;
  hidden_by?: 'rewind' | 'compaction' | 'refused';
  synthetic?: boolean;
  summary?: boolean;
  client_message_id?: string;
  user_message_id?: string;
  trigger?: Record<string, unknown>;
  snapshot_id?: string;
  /** Why it may not be what was stored. */
  damaged?: string | boolean;
  /** Tool calls whose output the model sees as a stub. */
  pruned?: string[];
  /** The model is not sent the parts from here on: their step was cut, and the turn went on without it. */
  unsent_from?: number;
  /** How the turn ended, when it did not end well: on its last message. */
  turn?: { status: string; stopped?: string | null; max_steps?: number; error?: { code: string; message: string; cause?: string; provider_id?: string; key_name?: string } | null };
}

export type Message = UIMessage<Metadata>;
export type Part = Message['parts'][number];

/** `provider/model`, with the variant behind a colon. */
export function modelName(model: Model | null | undefined): string {
  if (!model) return '';
  const variant = (model as { variant?: string | null }).variant;
  return `${model.provider_id}/${model.model_id}${variant ? `:${variant}` : ''}`;
}

/** The key by which a message stays the same thing while its id changes from the typed one to the stored one. */
export function keyOf(message: Message): string {
  return message.metadata?.client_message_id ?? message.id;
}

export function textOf(message: Pick<Message, 'parts'>): string {
  return message.parts
    .filter((part) => part.type === 'text')
    .map((part) => part.text)
    .join('\n\n');
}
