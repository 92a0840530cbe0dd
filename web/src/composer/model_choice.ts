/** Which model the next message asks for: the session's own, until another is picked. */

import type { Model, ModelListing } from '../api/types';

/** What most models can be asked to do, for one turn: how hard to think. */
const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'];
const VARIANTS = new Set(['slow', ...EFFORTS]);

/** Those the server lists for a model; of one that was typed nobody here knows, and the server says so. */
export function variantsOf(name: string, models: readonly ModelListing[]): readonly string[] {
  return models.find((model) => model.id === name)?.variants ?? EFFORTS;
}

/** For show only: what a name means the server decides. Only a variant that exists is taken for one. */
export function splitName(name: string): { base: string; variant: string | null } {
  const at = name.lastIndexOf(':');
  const variant = name.slice(at + 1);
  return at > 0 && VARIANTS.has(variant) ? { base: name.slice(0, at), variant } : { base: name, variant: null };
}

/** The session's model without its variant, which lasted for one turn. */
export function ownName(model: Model | undefined): string {
  return model ? `${model.provider_id}/${model.model_id}` : '';
}

/** A choice counts as long as it says something else than the session does. */
export function standing(choice: string | null, own: string): string | null {
  return choice !== null && choice !== own ? choice : null;
}

/** What stays of a choice when it was sent: the variant was for that one turn. */
export function afterSend(choice: string | null): string | null {
  return choice === null ? null : splitName(choice).base;
}

export function isName(text: string): boolean {
  return /^[^\s/]+\/\S+$/.test(text);
}

/** Usable ones first, each group as the server orders it; all words of the filter must be in the name. */
export function matching(models: readonly ModelListing[], filter: string): ModelListing[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = models.filter((model) => words.every((word) => model.id.toLowerCase().includes(word)));
  return [...found.filter((model) => model.usable), ...found.filter((model) => !model.usable)];
}

const key = (session: string) => `clew.model.${session}`;

export function loadChoice(session: string, storage: Storage = window.localStorage): string | null {
  const kept = storage.getItem(key(session));
  return kept !== null && isName(kept) ? kept : null;
}

export function saveChoice(session: string, choice: string | null, storage: Storage = window.localStorage): void {
  try {
    if (choice === null) storage.removeItem(key(session));
    else storage.setItem(key(session), choice);
  } catch {
    // A full storage: the choice lasts as long as the page does.
  }
}
