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
  TreeTurn,
  TreeView,
  TurnReport,
} from '@clew/client';

export type Session = SessionShape;
export type { ContextReport, Model, ModelListing, ReflogEntry, SearchHit, Status, StoredMessage, TreeTurn, TreeView, TurnReport };

export interface Usage {
  input: number;
  output: number;
  reasoning: number;
  cache_read: number;
  cache_write: number;
  /** Some counts are estimates: the provider did not report them. */
  estimated?: boolean;
}

/** The server's metadata of a message. All of it may be missing on a message that was just typed. */
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
  /** The reasons why the shown content may differ from the stored one. */
  damaged?: string | boolean;
  /** Tool calls whose output the model sees as a stub. */
  pruned?: string[];
  /** Index of the first part that the model is not sent: its step was interrupted, and the turn continued without it. */
  unsent_from?: number;
  /** The end of a turn that did not complete, on its last message. */
  turn?: { status: string; stopped?: string | null; max_steps?: number; error?: { code: string; message: string; cause?: string; provider_id?: string; key_name?: string } | null };
}

export type Message = UIMessage<Metadata>;
export type Part = Message['parts'][number];

/** Format a model as `provider/model` or `provider/model:variant`. */
export function modelName(model: Model | null | undefined): string {
  if (!model) return '';
  const variant = (model as { variant?: string | null }).variant;
  return `${model.provider_id}/${model.model_id}${variant ? `:${variant}` : ''}`;
}

/** Return a key that stays stable when the client's message id is replaced by the stored one. */
export function keyOf(message: Message): string {
  return message.metadata?.client_message_id ?? message.id;
}

export function textOf(message: Pick<Message, 'parts'>): string {
  return message.parts
    .filter((part) => part.type === 'text')
    .map((part) => part.text)
    .join('\n\n');
}
