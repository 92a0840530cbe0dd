/** Collapses long text to its first lines. */

export const COLLAPSED_LINES = 20;
/** Characters shown at most: a single line may be a whole file. */
export const COLLAPSED_CHARS = 4000;

export interface Collapsed {
  shown: string;
  lines: number;
  collapsed: boolean;
}

export function collapse(text: string, most = COLLAPSED_LINES): Collapsed {
  const whole = text.replace(/\n+$/, '');
  const lines = whole === '' ? 0 : whole.split('\n');
  const count = lines === 0 ? 0 : lines.length;
  // Hiding one or two lines would not save space: the button is as high.
  const shown = lines === 0 || count <= most + 2 ? whole : lines.slice(0, most).join('\n');
  const cut = shown.length > COLLAPSED_CHARS ? `${shown.slice(0, COLLAPSED_CHARS)}…` : shown;
  return { shown: cut, lines: count, collapsed: cut !== whole };
}
