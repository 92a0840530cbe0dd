/** Fetches files of messages with the token and shows them from object URLs. */

import type { FileUIPart } from 'ai';
import { useEffect, useState } from 'react';
import type { Client } from '../api/client';
import { useHost } from '../state/host';
import { revokeLater } from '../ui/object_url';

/** Raster images only: SVG may contain scripts. */
const PICTURES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/avif']);

export function isPicture(part: Pick<FileUIPart, 'mediaType'>): boolean {
  return PICTURES.has(part.mediaType);
}

/** Return the bytes of a server blob or a data URL; nothing else is fetched. */
export async function bytesOf(client: Client, part: Pick<FileUIPart, 'url' | 'mediaType'>): Promise<Blob> {
  const blob = /^(?:https?:\/\/[^/]+)?\/api\/blobs\/([\w-]+)$/.exec(part.url)?.[1];
  if (blob) {
    const bytes = await client.call('GET /api/blobs/{sha256}', { path: { sha256: blob } });
    return new Blob([bytes], { type: part.mediaType });
  }
  const data = /^data:[^,]*;base64,(.*)$/s.exec(part.url)?.[1];
  if (data !== undefined) return new Blob([Uint8Array.from(atob(data), (char) => char.charCodeAt(0))], { type: part.mediaType });
  throw new Error('this file is not stored here');
}

/** Return an object URL of the image; null while it loads, false if it could not be loaded. */
export function usePicture(part: FileUIPart): string | null | false {
  const { client } = useHost();
  const { url, mediaType } = part;
  const [src, setSrc] = useState<string | null | false>(null);
  useEffect(() => {
    let unmounted = false;
    bytesOf(client, { url, mediaType }).then(
      (bytes) => !unmounted && setSrc(URL.createObjectURL(bytes)),
      () => !unmounted && setSrc(false),
    );
    return () => {
      unmounted = true;
    };
  }, [client, url, mediaType]);
  // After sending, the file gets another URL; the old object URL is shown until the new one has loaded.
  useEffect(() => () => (src ? revokeLater(src) : undefined), [src]);
  return src;
}
