/** Focuses an element that is rendered with the next frame. */

import { focusQuietly } from './composer_field';
import { markActivity } from './user_activity';

/** Focus the element in the next frame, unless the user has moved on since `from`. */
export function focusNext(find: () => HTMLElement | null | undefined, from = markActivity()): number {
  return requestAnimationFrame(() => {
    const at = document.activeElement;
    if (!(from.idle() || at === null || at === from.at || at === document.body)) return;
    const found = find();
    if (found instanceof HTMLTextAreaElement) focusQuietly(found);
    else found?.focus();
  });
}
