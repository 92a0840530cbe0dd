/** The model for the next message: the session's own, unless another one is chosen. */

import type { Model, ModelListing } from '../api/types';

/** Reasoning efforts that most models accept, for one turn. */
const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'];
const VARIANTS = new Set(['slow', ...EFFORTS]);

/** Return the variants that the server lists for a model. For an unlisted model return all efforts; the server validates them. */
export function variantsOf(name: string, models: readonly ModelListing[]): readonly string[] {
  return models.find((model) => model.id === name)?.variants ?? EFFORTS;
}

/** Split a name into model and variant, for display only; the server parses the name itself. */
export function splitName(name: string): { base: string; variant: string | null } {
  const at = name.lastIndexOf(':');
  const variant = name.slice(at + 1);
  return at > 0 && VARIANTS.has(variant) ? { base: name.slice(0, at), variant } : { base: name, variant: null };
}

/** Return the name of the session's model without its variant, which applied to one turn. */
export function ownName(model: Model | undefined): string {
  return model ? `${model.provider_id}/${model.model_id}` : '';
}

/** Return the choice if it differs from the session's model. */
export function effectiveChoice(choice: string | null, own: string): string | null {
  return choice !== null && choice !== own ? choice : null;
}

/** Return what remains of a choice after sending: without the variant, which was for that turn only. */
export function afterSend(choice: string | null): string | null {
  return choice === null ? null : splitName(choice).base;
}

export function isName(text: string): boolean {
  return /^[^\s/]+\/\S+$/.test(text);
}

/** Return the models whose names contain all words of the filter, usable ones first, in the server's order. */
export function matching(models: readonly ModelListing[], filter: string): ModelListing[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = models.filter((model) => words.every((word) => model.id.toLowerCase().includes(word)));
  return [...found.filter((model) => model.usable), ...found.filter((model) => !model.usable)];
}

const key = (session: string) => `clew.model.${session}`;

export function loadChoice(session: string, storage: Storage = window.localStorage): string | null {
  const stored = storage.getItem(key(session));
  return stored !== null && isName(stored) ? stored : null;
}

export function saveChoice(session: string, choice: string | null, storage: Storage = window.localStorage): void {
  try {
    if (choice === null) storage.removeItem(key(session));
    else storage.setItem(key(session), choice);
  } catch {
    // Storage is full; the choice lasts as long as the page.
  }
}
