/** What was typed and not sent: kept in this browser, for each session, until the server has it. */

export interface Draft {
  text: string;
  /** The message it would replace. */
  editing: string | null;
}

const NOTHING: Draft = { text: '', editing: null };

function key(session: string): string {
  return `clew.draft.${session}`;
}

export function loadDraft(session: string, storage: Storage = window.localStorage): Draft {
  try {
    const kept: unknown = JSON.parse(storage.getItem(key(session)) ?? 'null');
    if (!kept || typeof kept !== 'object') return NOTHING;
    const { text, editing } = kept as Partial<Draft>;
    return typeof text === 'string' ? { text, editing: typeof editing === 'string' ? editing : null } : NOTHING;
  } catch {
    return NOTHING;
  }
}

export function saveDraft(session: string, draft: Draft, storage: Storage = window.localStorage): void {
  try {
    if (draft.text) storage.setItem(key(session), JSON.stringify(draft));
    else storage.removeItem(key(session));
  } catch {
    // A full storage, or none: the field still holds the text.
  }
}

export function forgetDraft(session: string): void {
  saveDraft(session, NOTHING);
}

/** What came back stands before what was typed since; nothing is written over, and nothing twice. */
export function joinDrafts(returned: string, typed: string): string {
  if (!typed.trim() || typed === returned) return returned;
  if (!returned.trim()) return typed;
  return `${returned}\n\n${typed}`;
}
