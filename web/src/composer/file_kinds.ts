/** What a file is by its bytes, as the server finds it, and whether a model takes it: before it is sent. */

import type { ModelListing } from '../api/types';

export interface FileContent {
  mediaType: string;
  isText: boolean;
  /** It does not break off. */
  whole: boolean;
}

const TEXT_TYPE = /^(text\/.*|application\/(json|xml|yaml|toml|javascript)(;.*)?)$/;

/** The same table as in the engine; a corpus holds both to it. */
const KINDS: { type: string; begins: (bytes: Uint8Array) => boolean; whole: (bytes: Uint8Array) => boolean }[] = [
  { type: 'image/png', begins: (bytes) => at(bytes, 0, '\x89PNG\r\n\x1a\n'), whole: isWholePng },
  { type: 'image/jpeg', begins: (bytes) => at(bytes, 0, '\xff\xd8\xff'), whole: (bytes) => holds(bytes, '\xff\xd9') },
  { type: 'image/gif', begins: (bytes) => at(bytes, 0, 'GIF87a') || at(bytes, 0, 'GIF89a'), whole: (bytes) => holds(bytes, '\0;') },
  { type: 'image/webp', begins: (bytes) => at(bytes, 0, 'RIFF') && at(bytes, 8, 'WEBP'), whole: (bytes) => new DataView(bytes.buffer, bytes.byteOffset).getUint32(4, true) + 8 <= bytes.length },
  { type: 'application/pdf', begins: (bytes) => at(bytes, 0, '%PDF-'), whole: (bytes) => holds(bytes, '%%EOF') },
];

export function contentOf(bytes: Uint8Array, claimed: string): FileContent {
  const kind = KINDS.find(({ begins }) => begins(bytes));
  if (kind) return { mediaType: kind.type, isText: false, whole: kind.whole(bytes) };
  if (!isText(bytes, claimed)) return { mediaType: KINDS.some(({ type }) => type === claimed) ? 'application/octet-stream' : claimed, isText: false, whole: true };
  return { mediaType: TEXT_TYPE.test(claimed) ? claimed : 'text/plain', isText: true, whole: true };
}

/** A sentence about the first of these files that the model would not be given; null where it takes them all. */
export async function unfitFile(files: readonly File[], model: ModelListing | undefined): Promise<string | null> {
  // A model that is not in the list: the server knows more.
  if (!model) return null;
  for (const file of files) {
    const claimed = file.type.split(';')[0]!.trim().toLowerCase() || 'application/octet-stream';
    const { mediaType, isText: text, whole } = contentOf(new Uint8Array(await file.arrayBuffer()), claimed);
    if (!whole) return `“${file.name}” (${mediaType}) is not whole. Leave it out, or attach it again from where it is.`;
    if (text || model.files?.some((pattern) => matches(pattern.toLowerCase(), mediaType))) continue;
    const taken = ['text', ...(model.files ?? [])].join(', ');
    return `“${file.name}” (${mediaType}) cannot be sent to ${model.id}, which takes ${taken}. Leave the file out, turn it into one of these, or choose another model.`;
  }
  return null;
}

function matches(pattern: string, mediaType: string): boolean {
  return pattern.endsWith('*') ? mediaType.startsWith(pattern.slice(0, -1)) : pattern === mediaType;
}

function isText(bytes: Uint8Array, claimed: string): boolean {
  const wide = at(bytes, 0, '\xff\xfe') ? 'utf-16le' : at(bytes, 0, '\xfe\xff') ? 'utf-16be' : null;
  // What no text holds. Form feeds are in old sources, and escapes in what terminals were shown.
  const strange = !wide && bytes.some((byte) => byte < 9 || (byte > 13 && byte < 27) || (byte > 27 && byte < 32) || byte === 127);
  if (strange) return false;
  try {
    new TextDecoder(wide ?? 'utf-8', { fatal: true }).decode(bytes);
    return true;
  } catch {
    return TEXT_TYPE.test(claimed) && !bytes.some((byte) => byte < 9 || (byte > 13 && byte < 27) || (byte > 27 && byte < 32) || byte === 127);
  }
}

function isWholePng(bytes: Uint8Array): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let place = 8; place + 12 <= bytes.length; place += 12 + view.getUint32(place)) if (at(bytes, place + 4, 'IEND')) return true;
  return false;
}

function at(bytes: Uint8Array, place: number, text: string): boolean {
  return bytes.length >= place + text.length && [...text].every((letter, index) => bytes[place + index] === letter.charCodeAt(0));
}

function holds(bytes: Uint8Array, text: string): boolean {
  const first = text.charCodeAt(0);
  for (let place = bytes.indexOf(first); place >= 0; place = bytes.indexOf(first, place + 1)) if (at(bytes, place, text)) return true;
  return false;
}
