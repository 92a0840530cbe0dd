/** Addresses of bytes that this page holds. */

const SHOWN_MS = 10_000;

/** Give an address up, a while after nobody shows it any more: what still loads from it would fail. */
export function giveUp(url: string): void {
  setTimeout(() => URL.revokeObjectURL(url), SHOWN_MS);
}
