/** A row of the list cannot be seen before it has been measured, and takes no focus until then: so it is tried again. */

const FRAMES = 120;

/** Calls `then` when the element has the focus. What is given back stops the trying. */
export function focusSoon(find: () => HTMLElement | null, may: () => boolean = () => true, then: () => void = () => undefined): () => void {
  let left = FRAMES;
  let frame = requestAnimationFrame(function attempt() {
    const element = find();
    if (!may()) return;
    element?.focus({ preventScroll: true });
    if (element && document.activeElement === element) then();
    else if ((left -= 1) > 0) frame = requestAnimationFrame(attempt);
  });
  return () => cancelAnimationFrame(frame);
}
