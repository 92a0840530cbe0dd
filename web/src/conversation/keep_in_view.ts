/** Keeps a message in view while the rows around it are still being measured. */

/** Frames without movement after which the layout is stable. */
const STABLE_FRAMES = 30;
const INTENTS = ['wheel', 'touchmove', 'keydown', 'pointerdown'] as const;

/** Scroll to the element until the layout is stable or the reader acts. */
export function keepInView(element: HTMLElement): void {
  const reader = new AbortController();
  for (const kind of INTENTS) window.addEventListener(kind, () => reader.abort(), { passive: true, signal: reader.signal });
  let before: number | undefined;
  let still = 0;
  const update = () => {
    if (reader.signal.aborted) return;
    // Scroll every frame, even without movement: the content may have become high enough only now.
    element.scrollIntoView({ block: 'center' });
    const { top } = element.getBoundingClientRect();
    still = top === before ? still + 1 : 0;
    before = top;
    if (still < STABLE_FRAMES && element.isConnected) requestAnimationFrame(update);
    else reader.abort();
  };
  update();
}
