/** On a narrow screen the list of sessions is a drawer: the focus goes in with it, and out again when it closes. */

import { type RefObject, useEffect, useRef } from 'react';

export function useDrawerFocus(drawer: RefObject<HTMLElement | null>, open: boolean): void {
  const before = useRef(open);
  useEffect(() => {
    const changed = before.current !== open;
    before.current = open;
    const aside = drawer.current;
    if (!changed || !aside) return;
    const at = document.activeElement;
    const inside = aside.contains(at);
    if (open && !inside) aside.querySelector<HTMLElement>('a[data-home], [data-home]')?.focus();
    // On a wide screen it stays where it is, and so does the focus.
    const hidden = aside.getClientRects().length === 0;
    if (!open && hidden && (inside || !at || at === document.body)) document.querySelector<HTMLElement>('main button[aria-label="Sessions"]')?.focus();
  }, [drawer, open]);
}
