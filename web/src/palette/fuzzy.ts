/** How well typed letters fit a text: all of them in this order, better together and at the beginnings of words. */

/** Null where it does not fit; the more, the better. */
export function fit(typed: string, text: string): number | null {
  const wanted = typed.toLowerCase().replace(/\s+/g, '');
  if (wanted === '') return 0;
  const low = text.toLowerCase();
  const whole = low.indexOf(typed.trim().toLowerCase());
  // What stands there as it was typed is what was meant.
  if (whole >= 0) return 1000 - Math.min(whole, 400) - Math.min(low.length, 200) / 10 + (begins(low, whole) ? 200 : 0);
  let score = 0;
  let at = -1;
  for (const letter of wanted) {
    const next = low.indexOf(letter, at + 1);
    if (next < 0) return null;
    score += next === at + 1 ? 8 : begins(low, next) ? 6 : -Math.min(next - at, 10) / 5;
    at = next;
  }
  score -= low.length / 50;
  // Letters scattered over a long text are found in any text.
  return score > 2 * wanted.length ? score : null;
}

function begins(text: string, at: number): boolean {
  return at === 0 || /[\s/_.:-]/.test(text[at - 1]!);
}

/** The best of them, best first; of those that fit alike, in the order they came. */
export function best<T>(typed: string, all: readonly T[], textOf: (one: T) => string, most: number): { one: T; score: number }[] {
  const scored = all.flatMap((one, index) => {
    const score = fit(typed, textOf(one));
    return score === null ? [] : [{ one, score, index }];
  });
  return scored
    .sort((a, b) => b.score - a.score || a.index - b.index)
    .slice(0, most);
}
