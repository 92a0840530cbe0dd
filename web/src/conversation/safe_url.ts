/** Which addresses of a model's text may be followed: those that open a page or a letter, and nothing that acts here. */

const FOLLOWED = new Set(['http:', 'https:', 'mailto:']);

export function safeUrl(url: unknown): string | null {
  if (typeof url !== 'string') return null;
  try {
    // No base: an address without a scheme would lead into this very page.
    const parsed = new URL(url);
    return FOLLOWED.has(parsed.protocol) ? parsed.href : null;
  } catch {
    return null;
  }
}
