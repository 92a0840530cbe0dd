/** Downloads a session as a file. */

import type { Client } from '../api/client';
import { revokeLater } from '../ui/object_url';

export const FORMATS = { json: 'JSON', md: 'Markdown', html: 'HTML', 'claude-code': 'Claude Code', pi: 'pi' } as const;
export type Format = keyof typeof FORMATS;

/** Return a file name that every file system accepts. */
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
  // As binary: an exported HTML page must not open with this page's origin.
  const url = URL.createObjectURL(new Blob([file], { type: 'application/octet-stream' }));
  const link = document.createElement('a');
  link.href = url;
  // Read now: the session may have been loading when the download started.
  link.download = fileName(title(), format);
  link.click();
  revokeLater(url);
}
