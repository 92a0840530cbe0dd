/** Tracks whether the user has done anything since an action was requested, so that a late result does not move the focus. */

let actions = 0;
const count = () => {
  actions += 1;
};
// In the capture phase, so that a key is counted before its handlers run.
window.addEventListener('keydown', count, true);
window.addEventListener('pointerdown', count, true);

export interface ActivityMark {
  /** Whether the user has neither pressed a key nor the pointer since. */
  idle: () => boolean;
  /** The focused element at that time. */
  at: Element | null;
}

/** Record the current activity. Call it when an action is requested, before awaiting anything. */
export function markActivity(): ActivityMark {
  const before = actions;
  return { idle: () => actions === before, at: document.activeElement };
}
