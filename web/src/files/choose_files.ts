/** Asks what happens to the files of the workspace when the conversation moves. */

import type { FilesRestored, RestorePreview } from '@clew/client';
import type { Message } from '../api/types';
import type { Conversation } from '../state/conversation';
import { rewoundGroups } from '../state/rewound';

export type FilesMode = 'keep' | 'restore' | 'only';

/** An answer to the question. `paths` are files to overwrite although someone else changed them. */
export interface FilesChoice {
  files: FilesMode;
  paths: string[];
}

/** A move of the conversation. */
export type Move = { kind: 'rewind' | 'edit'; messageId: string } | { kind: 'unrewind' } | { kind: 'goto'; turnId: string };

export interface RestoreQuestion {
  kind: Move['kind'];
  preview: RestorePreview;
  /** Called once, with null if cancelled. */
  answer: (choice: FilesChoice | null) => void;
}

export const KEEP: FilesChoice = { files: 'keep', paths: [] };

/** Return the fields of a request for this choice. */
export function filesBody({ files, paths }: FilesChoice): { files?: FilesMode; paths?: string[] } {
  return files === 'keep' ? {} : { files, ...(paths.length > 0 && { paths }) };
}

/** Return what the person chooses, or null if they cancel. Nothing is asked where no file would change. */
export async function chooseFiles(conversation: Conversation, move: Move): Promise<FilesChoice | null> {
  const preview = await loadPreview(conversation, move).catch(() => null);
  if (!preview || preview.files.length === 0) return KEEP;
  conversation.store.get().question?.answer(null);
  return new Promise((resolve) => {
    const answer = (choice: FilesChoice | null) => {
      conversation.store.set({ question: null });
      resolve(choice);
    };
    conversation.store.set({ question: { kind: move.kind, preview, answer } });
  });
}

async function loadPreview({ client, id, store, messages }: Conversation, move: Move): Promise<RestorePreview | null> {
  const { session, tree } = store.get();
  if (!session?.workspace_root) return null;
  let query: { message_id: string } | { turn_id: string } | { to: 'unrewind' };
  let seen: readonly Message[];
  if ('messageId' in move) {
    query = { message_id: move.messageId };
    // Copied messages of a branch use the snapshots of the session they come from.
    seen = session.parent_id === null ? messages.filter((message) => message.id === move.messageId) : messages;
  } else {
    query = move.kind === 'goto' ? { turn_id: move.turnId } : { to: 'unrewind' };
    const turn = move.kind === 'goto' ? move.turnId : rewoundGroups(tree).toSorted((one, other) => (one.tip < other.tip ? 1 : -1))[0]?.tip;
    if (turn === undefined) return null;
    seen = (await client.call('GET /api/turns/{id}/messages', { path: { id: turn } })).messages as unknown as Message[];
  }
  if (!seen.some((message) => message.metadata?.snapshot_id !== undefined)) return null;
  const changes = await client.call('GET /api/sessions/{id}/changes', { path: { id } });
  // No snapshot could be taken of this folder.
  if (changes.failed && changes.files.length === 0) return null;
  return client.call('GET /api/sessions/{id}/restore', { path: { id }, query });
}

/** Describe the result of a restore in one line. */
export function restoredText({ restored, conflicts = [], unsure = [] }: FilesRestored): string {
  const sentences = [restored.length === 0 ? 'No files restored.' : `Restored ${named(restored)}.`];
  if (conflicts.length > 0) sentences.push(`Left alone, changed by someone else: ${named(conflicts)}.`);
  if (unsure.length > 0) sentences.push(`Check ${named(unsure)}: the snapshot was taken while a command was running.`);
  return sentences.join(' ');
}

const MAX_NAMED = 3;

function named(paths: readonly string[]): string {
  if (paths.length <= MAX_NAMED) return paths.join(', ');
  return `${paths.slice(0, MAX_NAMED - 1).join(', ')} and ${paths.length - MAX_NAMED + 1} more files`;
}
