/** A file of a message: fetched with the token, shown from this browser's memory. */

import type { FileUIPart } from 'ai';
import { useEffect, useState } from 'react';
import type { Client } from '../api/client';
import { useHost } from '../state/host';
import { giveUp } from '../ui/object_url';

/** Only pictures that are pixels: the others may hold more than a picture. */
const PICTURES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/avif']);

export function isPicture(part: Pick<FileUIPart, 'mediaType'>): boolean {
  return PICTURES.has(part.mediaType);
}

/** The bytes of the server's own blobs and of what the message itself holds; nothing else is fetched. */
export async function bytesOf(client: Client, part: Pick<FileUIPart, 'url' | 'mediaType'>): Promise<Blob> {
  const blob = /^(?:https?:\/\/[^/]+)?\/api\/blobs\/([\w-]+)$/.exec(part.url)?.[1];
  if (blob) {
    const bytes = await client.call('GET /api/blobs/{sha256}', { path: { sha256: blob } });
    return new Blob([bytes], { type: part.mediaType });
  }
  const data = /^data:[^,]*;base64,(.*)$/s.exec(part.url)?.[1];
  if (data !== undefined) return new Blob([Uint8Array.from(atob(data), (char) => char.charCodeAt(0))], { type: part.mediaType });
  throw new Error('this file is somewhere else');
}

/** An address of this page for the picture; null while it is on its way, false when it cannot be had. */
export function usePicture(part: FileUIPart): string | null | false {
  const { client } = useHost();
  const { url, mediaType } = part;
  const [src, setSrc] = useState<string | null | false>(null);
  useEffect(() => {
    let gone = false;
    bytesOf(client, { url, mediaType }).then(
      (bytes) => !gone && setSrc(URL.createObjectURL(bytes)),
      () => !gone && setSrc(false),
    );
    return () => {
      gone = true;
    };
  }, [client, url, mediaType]);
  // What was just sent is stored under another name: it is shown from the old address until the new one is there.
  useEffect(() => () => (src ? giveUp(src) : undefined), [src]);
  return src;
}
