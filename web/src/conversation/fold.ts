/** Long text, folded: its first lines, and how many there are. */

export const FOLDED_LINES = 20;
/** A single line may be a whole file; so many characters of the first lines are shown at most. */
export const FOLDED_CHARS = 4000;

export interface Folded {
  shown: string;
  lines: number;
  folded: boolean;
}

export function fold(text: string, most = FOLDED_LINES): Folded {
  const whole = text.replace(/\n+$/, '');
  const lines = whole === '' ? 0 : whole.split('\n');
  const count = lines === 0 ? 0 : lines.length;
  // Two lines more are shown rather than hidden behind a button as high as they are.
  const shown = lines === 0 || count <= most + 2 ? whole : lines.slice(0, most).join('\n');
  const cut = shown.length > FOLDED_CHARS ? `${shown.slice(0, FOLDED_CHARS)}…` : shown;
  return { shown: cut, lines: count, folded: cut !== whole };
}
