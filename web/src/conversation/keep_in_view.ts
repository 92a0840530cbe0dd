/** What is around a message may still be drawn and measured when it is landed on: it is brought back until nothing moves it. */

/** So many frames without a move, and it is where it will stay. */
const STILL = 30;
const INTENTS = ['wheel', 'touchmove', 'keydown', 'pointerdown'] as const;

/** Ends by itself, or with the first thing the reader does. */
export function keepInView(element: HTMLElement): void {
  const reader = new AbortController();
  for (const kind of INTENTS) window.addEventListener(kind, () => reader.abort(), { passive: true, signal: reader.signal });
  let before: number | undefined;
  let still = 0;
  const look = () => {
    if (reader.signal.aborted) return;
    // At each look, also when it did not move: what it could not be scrolled to before may have become high enough.
    element.scrollIntoView({ block: 'center' });
    const { top } = element.getBoundingClientRect();
    still = top === before ? still + 1 : 0;
    before = top;
    if (still < STILL && element.isConnected) requestAnimationFrame(look);
    else reader.abort();
  };
  look();
}
