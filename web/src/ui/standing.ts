/** Where a reader is, and whether they have gone on since: who did something meanwhile is not brought back. */

let acts = 0;
const count = () => {
  acts += 1;
};
// Before anybody else, so that what a key does begins after the key was counted.
window.addEventListener('keydown', count, true);
window.addEventListener('pointerdown', count, true);

export interface Standing {
  /** They have neither pressed nor pointed at anything since. */
  stayed: () => boolean;
  /** What had the focus. */
  at: Element | null;
}

/** To be taken when something is asked for, before anything is waited for. */
export function standing(): Standing {
  const before = acts;
  return { stayed: () => acts === before, at: document.activeElement };
}
