/** A session as a file on this machine. */

import type { Client } from '../api/client';
import { giveUp } from '../ui/object_url';

export const FORMATS = { json: 'JSON', md: 'Markdown', html: 'HTML', 'claude-code': 'Claude Code', pi: 'pi' } as const;
export type Format = keyof typeof FORMATS;

/** A name that every file system takes. */
export function fileName(title: string | null, format: Format): string {
  const plain = (title ?? '')
    .normalize('NFKC')
    .replace(/[^\p{L}\p{N}\p{M}._ -]+/gu, ' ')
    .replace(/\s+/g, ' ')
    .replace(/^[. ]+|[. ]+$/g, '')
    .slice(0, 80)
    .trim();
  return `${plain || 'session'}.${format === 'claude-code' || format === 'pi' ? `${format}.jsonl` : format}`;
}

export async function download(client: Client, id: string, title: () => string | null, format: Format): Promise<void> {
  const file = await client.call('GET /api/sessions/{id}/export', { path: { id }, query: { format } });
  // Typed as bytes: a saved page must not be opened with this page's rights.
  const url = URL.createObjectURL(new Blob([file], { type: 'application/octet-stream' }));
  const link = document.createElement('a');
  link.href = url;
  // Read now: the session may have been loading when this began.
  link.download = fileName(title(), format);
  link.click();
  giveUp(url);
}
