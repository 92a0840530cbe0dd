/** On narrow screens the session list is a drawer: move the focus into it when it opens, and back when it closes. */

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
    // On wide screens it stays visible, and the focus stays too.
    const hidden = aside.getClientRects().length === 0;
    if (!open && hidden && (inside || !at || at === document.body)) document.querySelector<HTMLElement>('main button[aria-label="Sessions"]')?.focus();
  }, [drawer, open]);
}
