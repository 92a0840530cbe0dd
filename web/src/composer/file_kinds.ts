/** Detects file types from their bytes, as the server does, and checks before sending whether a model accepts them. */

import type { ModelListing } from '../api/types';

export interface FileContent {
  mediaType: string;
  isText: boolean;
  /** Whether the file is complete, not truncated. */
  whole: boolean;
}

const TEXT_TYPE = /^(text\/.*|application\/(json|xml|yaml|toml|javascript)(;.*)?)$/;

/** The same table as in the engine; both are tested with one corpus. */
const KINDS: { type: string; begins: (bytes: Uint8Array) => boolean; whole: (bytes: Uint8Array) => boolean }[] = [
  { type: 'image/png', begins: (bytes) => at(bytes, 0, '\x89PNG\r\n\x1a\n'), whole: isWholePng },
  { type: 'image/jpeg', begins: (bytes) => at(bytes, 0, '\xff\xd8\xff'), whole: (bytes) => includes(bytes, '\xff\xd9') },
  { type: 'image/gif', begins: (bytes) => at(bytes, 0, 'GIF87a') || at(bytes, 0, 'GIF89a'), whole: (bytes) => includes(bytes, '\0;') },
  { type: 'image/webp', begins: (bytes) => at(bytes, 0, 'RIFF') && at(bytes, 8, 'WEBP'), whole: (bytes) => new DataView(bytes.buffer, bytes.byteOffset).getUint32(4, true) + 8 <= bytes.length },
  { type: 'application/pdf', begins: (bytes) => at(bytes, 0, '%PDF-'), whole: (bytes) => includes(bytes, '%%EOF') },
];

export function contentOf(bytes: Uint8Array, claimed: string): FileContent {
  const kind = KINDS.find(({ begins }) => begins(bytes));
  if (kind) return { mediaType: kind.type, isText: false, whole: kind.whole(bytes) };
  if (!isText(bytes, claimed)) return { mediaType: KINDS.some(({ type }) => type === claimed) ? 'application/octet-stream' : claimed, isText: false, whole: true };
  return { mediaType: TEXT_TYPE.test(claimed) ? claimed : 'text/plain', isText: true, whole: true };
}

/** Return a message about the first file that the model does not accept, or null. */
export async function findUnsupportedFile(files: readonly File[], model: ModelListing | undefined): Promise<string | null> {
  // Unlisted models are checked by the server.
  if (!model) return null;
  for (const file of files) {
    const claimed = file.type.split(';')[0]!.trim().toLowerCase() || 'application/octet-stream';
    const { mediaType, isText: text, whole } = contentOf(new Uint8Array(await file.arrayBuffer()), claimed);
    if (!whole) return `“${file.name}” (${mediaType}) is truncated. Remove it or attach it again.`;
    if (text || model.files?.some((pattern) => matches(pattern.toLowerCase(), mediaType))) continue;
    const accepted = ['text', ...(model.files ?? [])].join(', ');
    return `“${file.name}” (${mediaType}) cannot be sent to ${model.id}, which accepts ${accepted}. Remove the file, convert it, or choose another model.`;
  }
  return null;
}

function matches(pattern: string, mediaType: string): boolean {
  return pattern.endsWith('*') ? mediaType.startsWith(pattern.slice(0, -1)) : pattern === mediaType;
}

function isText(bytes: Uint8Array, claimed: string): boolean {
  const wide = at(bytes, 0, '\xff\xfe') ? 'utf-16le' : at(bytes, 0, '\xfe\xff') ? 'utf-16be' : null;
  // Control characters that do not occur in text. Form feeds occur in old sources, escapes in terminal output.
  const binary = !wide && bytes.some((byte) => byte < 9 || (byte > 13 && byte < 27) || (byte > 27 && byte < 32) || byte === 127);
  if (binary) return false;
  try {
    new TextDecoder(wide ?? 'utf-8', { fatal: true }).decode(bytes);
    return true;
  } catch {
    return TEXT_TYPE.test(claimed) && !bytes.some((byte) => byte < 9 || (byte > 13 && byte < 27) || (byte > 27 && byte < 32) || byte === 127);
  }
}

function isWholePng(bytes: Uint8Array): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let offset = 8; offset + 12 <= bytes.length; offset += 12 + view.getUint32(offset)) if (at(bytes, offset + 4, 'IEND')) return true;
  return false;
}

function at(bytes: Uint8Array, offset: number, text: string): boolean {
  return bytes.length >= offset + text.length && [...text].every((letter, index) => bytes[offset + index] === letter.charCodeAt(0));
}

function includes(bytes: Uint8Array, text: string): boolean {
  const first = text.charCodeAt(0);
  for (let offset = bytes.indexOf(first); offset >= 0; offset = bytes.indexOf(first, offset + 1)) if (at(bytes, offset, text)) return true;
  return false;
}
