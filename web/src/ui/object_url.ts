/** Object URLs. */

const REVOKE_DELAY_MS = 10_000;

/** Revoke an object URL, delayed, since something may still load from it. */
export function revokeLater(url: string): void {
  setTimeout(() => URL.revokeObjectURL(url), REVOKE_DELAY_MS);
}
