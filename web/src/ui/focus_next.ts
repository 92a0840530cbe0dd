/** Gives the focus to what is only drawn with the next frame. */

import { focusQuietly } from './composer_field';
import { standing } from './standing';

/** Whoever has gone elsewhere `from` there by then stays where they are. */
export function focusNext(find: () => HTMLElement | null | undefined, from = standing()): number {
  return requestAnimationFrame(() => {
    const at = document.activeElement;
    if (!(from.stayed() || at === null || at === from.at || at === document.body)) return;
    const found = find();
    if (found instanceof HTMLTextAreaElement) focusQuietly(found);
    else found?.focus();
  });
}
