/** Files that go with a message: how many, how large, and how they are sent. */

import type { FileUIPart } from 'ai';
import { bytes, count } from '../ui/words';

export const MAX_FILES = 10;
export const MAX_FILE_BYTES = 10 * 1024 * 1024;
export const MAX_FILES_BYTES = 20 * 1024 * 1024;

export interface Attachment {
  key: string;
  file: File;
}

type Sized = Pick<File, 'name' | 'size'>;

/** What of `given` still fits beside `held`, and a sentence about what does not. */
export function admit<F extends Sized>(held: readonly Sized[], given: readonly F[]): { taken: F[]; refused: string | null } {
  const taken: F[] = [];
  const tooLarge: string[] = [];
  let total = held.reduce((sum, file) => sum + file.size, 0);
  let tooMany = 0;
  let over = 0;
  for (const file of given) {
    if (file.size > MAX_FILE_BYTES) tooLarge.push(`“${file.name}” has ${bytes(file.size)}`);
    else if (held.length + taken.length >= MAX_FILES) tooMany += 1;
    else if (total + file.size > MAX_FILES_BYTES) over += 1;
    else {
      taken.push(file);
      total += file.size;
    }
  }
  const sentences = [
    tooLarge.length ? `${tooLarge.join(', ')}; a file may have at most 10 MB.` : '',
    tooMany ? `A message takes at most ${MAX_FILES} files; ${count(tooMany, 'file')} left out.` : '',
    over ? `The files of a message may have 20 MB together; ${count(over, 'file')} left out.` : '',
  ];
  return { taken, refused: sentences.filter(Boolean).join(' ') || null };
}

/** The media type without parameters. What a file really is, the server sees by its bytes. */
export function mediaType(file: Pick<File, 'type'>): string {
  const plain = file.type.split(';')[0]!.trim();
  return /^[a-z0-9.+-]+\/[a-z0-9.+-]+$/i.test(plain) ? plain : 'application/octet-stream';
}

export async function asPart(file: File): Promise<FileUIPart> {
  const url = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new Error(`“${file.name}” cannot be read any more; attach it again`));
    reader.readAsDataURL(file);
  });
  const type = mediaType(file);
  return { type: 'file', mediaType: type, filename: file.name, url: `data:${type};base64,${url.slice(url.indexOf(',') + 1)}` };
}
