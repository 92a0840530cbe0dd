/** The URL schemes that links in a model's text may use. */

const ALLOWED = new Set(['http:', 'https:', 'mailto:']);

export function safeUrl(url: unknown): string | null {
  if (typeof url !== 'string') return null;
  try {
    // Without a base: a relative URL would lead into this page.
    const parsed = new URL(url);
    return ALLOWED.has(parsed.protocol) ? parsed.href : null;
  } catch {
    return null;
  }
}
