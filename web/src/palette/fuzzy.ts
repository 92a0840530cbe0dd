/** Fuzzy matching: all typed letters in order, with a bonus for adjacent letters and word starts. */

/** Return the score of a text, or null if it does not match. */
export function matchScore(typed: string, text: string): number | null {
  const letters = typed.toLowerCase().replace(/\s+/g, '');
  if (letters === '') return 0;
  const low = text.toLowerCase();
  const whole = low.indexOf(typed.trim().toLowerCase());
  // An exact substring is the best match.
  if (whole >= 0) return 1000 - Math.min(whole, 400) - Math.min(low.length, 200) / 10 + (startsWord(low, whole) ? 200 : 0);
  let score = 0;
  let at = -1;
  for (const letter of letters) {
    const next = low.indexOf(letter, at + 1);
    if (next < 0) return null;
    score += next === at + 1 ? 8 : startsWord(low, next) ? 6 : -Math.min(next - at, 10) / 5;
    at = next;
  }
  score -= low.length / 50;
  // Scattered letters match any long text.
  return score > 2 * letters.length ? score : null;
}

function startsWord(text: string, at: number): boolean {
  return at === 0 || /[\s/_.:-]/.test(text[at - 1]!);
}

/** Return the best matches, best first; equal scores keep their order. */
export function best<T>(typed: string, all: readonly T[], textOf: (one: T) => string, limit: number): { one: T; score: number }[] {
  const scored = all.flatMap((one, index) => {
    const score = matchScore(typed, textOf(one));
    return score === null ? [] : [{ one, score, index }];
  });
  return scored
    .sort((a, b) => b.score - a.score || a.index - b.index)
    .slice(0, limit);
}
