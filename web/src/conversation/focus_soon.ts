/** Focuses an element that cannot take the focus yet: rows of the list are invisible until they are measured. */

const MAX_FRAMES = 120;

/** Retry each frame until the element has the focus, then call `then`. Returns a function that cancels. */
export function focusSoon(find: () => HTMLElement | null, may: () => boolean = () => true, then: () => void = () => undefined): () => void {
  let left = MAX_FRAMES;
  let frame = requestAnimationFrame(function attempt() {
    const element = find();
    if (!may()) return;
    element?.focus({ preventScroll: true });
    if (element && document.activeElement === element) then();
    else if ((left -= 1) > 0) frame = requestAnimationFrame(attempt);
  });
  return () => cancelAnimationFrame(frame);
}
