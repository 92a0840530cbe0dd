/** Attached files: their limits, and how they are sent. */

import type { FileUIPart } from 'ai';
import { bytes, count } from '../ui/format';

export const MAX_FILES = 10;
export const MAX_FILE_BYTES = 10 * 1024 * 1024;
export const MAX_FILES_BYTES = 20 * 1024 * 1024;

export interface Attachment {
  key: string;
  file: File;
}

type Sized = Pick<File, 'name' | 'size'>;

/** Return the files of `added` that fit next to `attached`, and a message about the others. */
export function admit<F extends Sized>(attached: readonly Sized[], added: readonly F[]): { accepted: F[]; refused: string | null } {
  const accepted: F[] = [];
  const tooLarge: string[] = [];
  let total = attached.reduce((sum, file) => sum + file.size, 0);
  let tooMany = 0;
  let over = 0;
  for (const file of added) {
    if (file.size > MAX_FILE_BYTES) tooLarge.push(`“${file.name}” is ${bytes(file.size)}`);
    else if (attached.length + accepted.length >= MAX_FILES) tooMany += 1;
    else if (total + file.size > MAX_FILES_BYTES) over += 1;
    else {
      accepted.push(file);
      total += file.size;
    }
  }
  const sentences = [
    tooLarge.length ? `${tooLarge.join(', ')}; the limit is 10 MB per file.` : '',
    tooMany ? `At most ${MAX_FILES} files per message; ${count(tooMany, 'file')} not attached.` : '',
    over ? `At most 20 MB of files per message; ${count(over, 'file')} not attached.` : '',
  ];
  return { accepted, refused: sentences.filter(Boolean).join(' ') || null };
}

/** Return the media type without parameters. The server detects the real type from the bytes. */
export function mediaType(file: Pick<File, 'type'>): string {
  const plain = file.type.split(';')[0]!.trim();
  return /^[a-z0-9.+-]+\/[a-z0-9.+-]+$/i.test(plain) ? plain : 'application/octet-stream';
}

export async function asPart(file: File): Promise<FileUIPart> {
  const url = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new Error(`“${file.name}” could not be read; attach it again`));
    reader.readAsDataURL(file);
  });
  const type = mediaType(file);
  return { type: 'file', mediaType: type, filename: file.name, url: `data:${type};base64,${url.slice(url.indexOf(',') + 1)}` };
}
