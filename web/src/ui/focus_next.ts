/** Gives the focus to what is only drawn with the next frame. */

/** Whoever has gone elsewhere by then stays there, unless `mayLeave` says that this is no place of their choosing. */
export function focusNext(find: () => HTMLElement | null | undefined, mayLeave: (at: Element) => boolean = () => false): number {
  const before = document.activeElement;
  return requestAnimationFrame(() => {
    const at = document.activeElement;
    if (at === null || at === before || at === document.body || mayLeave(at)) find()?.focus();
  });
}
