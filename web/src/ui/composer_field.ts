/** The field of a composer, as other parts of the page find it, focus it and write into it. */

/** Return the composer of a pane, without one that of the main conversation. */
export function composerField(pane?: Element | null): HTMLTextAreaElement | null {
  return (pane ?? document).querySelector(pane ? 'textarea[data-home]' : 'main textarea[data-home]');
}

/** Nothing scrolls, and a touch screen keeps its keyboard closed until the field itself is touched: see `openKeyboard`. */
export function focusQuietly(element: HTMLElement | null | undefined): void {
  if (!element || document.activeElement === element) return;
  if (element instanceof HTMLTextAreaElement && window.matchMedia('(pointer: coarse)').matches) element.inputMode = 'none';
  element.focus({ preventScroll: true });
}

/** The field is touched: the focus that follows opens the keyboard of the screen. */
export function openKeyboard(field: HTMLTextAreaElement): void {
  if (field.inputMode !== 'none') return;
  field.inputMode = '';
  field.blur();
}

export function writeInComposer(field: HTMLTextAreaElement | null, text: string): void {
  if (!field) return;
  focusQuietly(field);
  field.setRangeText(text, field.selectionStart, field.selectionEnd, 'end');
  field.dispatchEvent(new InputEvent('input', { bubbles: true, inputType: 'insertText', data: text }));
}
