/** Finds, focuses and writes into the composer's text field. */

/** Return the composer of a pane, or of the main conversation without one. */
export function composerField(pane?: Element | null): HTMLTextAreaElement | null {
  return (pane ?? document).querySelector(pane ? 'textarea[data-home]' : 'main textarea[data-home]');
}

/** Focus without scrolling, and without opening the on-screen keyboard until the field is touched (see `openKeyboard`). */
export function focusQuietly(element: HTMLElement | null | undefined): void {
  if (!element || document.activeElement === element) return;
  if (element instanceof HTMLTextAreaElement && window.matchMedia('(pointer: coarse)').matches) element.inputMode = 'none';
  element.focus({ preventScroll: true });
}

/** Let the focus that follows a touch open the on-screen keyboard. */
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
