/** Unsent text, stored per session in this browser until the server has it. */

export interface Draft {
  text: string;
  /** The message that it replaces. */
  editing: string | null;
}

const EMPTY: Draft = { text: '', editing: null };

function key(session: string): string {
  return `clew.draft.${session}`;
}

export function loadDraft(session: string, storage: Storage = window.localStorage): Draft {
  try {
    const stored: unknown = JSON.parse(storage.getItem(key(session)) ?? 'null');
    if (!stored || typeof stored !== 'object') return EMPTY;
    const { text, editing } = stored as Partial<Draft>;
    return typeof text === 'string' ? { text, editing: typeof editing === 'string' ? editing : null } : EMPTY;
  } catch {
    return EMPTY;
  }
}

export function saveDraft(session: string, draft: Draft, storage: Storage = window.localStorage): void {
  try {
    if (draft.text) storage.setItem(key(session), JSON.stringify(draft));
    else storage.removeItem(key(session));
  } catch {
    // Storage is full or unavailable; the field still has the text.
  }
}

export function forgetDraft(session: string): void {
  saveDraft(session, EMPTY);
}

/** Put a returned text before what was typed since, without overwriting or repeating anything. */
export function mergeDrafts(returned: string, typed: string): string {
  if (!typed.trim() || typed === returned) return returned;
  if (!returned.trim()) return typed;
  return `${returned}\n\n${typed}`;
}
