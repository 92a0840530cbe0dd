/** A file of a message: a picture, or a chip that saves it. */

import type { FileUIPart } from 'ai';
import { useState } from 'react';
import { useHost } from '../state/host';
import { Icon } from '../ui/icon';
import { LargePicture } from '../ui/large_picture';
import { giveUp } from '../ui/object_url';
import { bytesOf, isPicture, usePicture } from './blob';

export function Attachment({ part }: { part: FileUIPart }) {
  return isPicture(part) ? <Picture part={part} /> : <FileChip part={part} />;
}

/** That of a file that a tool gave stands in clew's own note: a stream has no place for names. */
function nameOf(part: FileUIPart): string | undefined {
  const noted = part.providerMetadata?.clew?.name;
  return part.filename ?? (typeof noted === 'string' ? noted : undefined);
}

function Picture({ part }: { part: FileUIPart }) {
  const src = usePicture(part);
  if (src === false) return <FileChip part={part} />;
  // The height is there before the picture is, so that nothing jumps.
  return (
    <span className="inline-flex h-40 min-w-20 items-center justify-center overflow-hidden rounded-lg border border-line bg-panel">
      {src && <LargePicture src={src} alt={nameOf(part) ?? 'Attached picture'} className="h-40 max-w-full object-contain" />}
    </span>
  );
}

function FileChip({ part }: { part: FileUIPart }) {
  const { client } = useHost();
  const [failed, setFailed] = useState(false);
  const name = nameOf(part) ?? part.mediaType;
  const save = async () => {
    try {
      const url = URL.createObjectURL(await bytesOf(client, part));
      const link = document.createElement('a');
      link.href = url;
      link.download = nameOf(part) ?? 'file';
      link.click();
      giveUp(url);
      setFailed(false);
    } catch {
      setFailed(true);
    }
  };
  return (
    <button
      type="button"
      onClick={() => void save()}
      title={failed ? 'This file cannot be read' : `Save ${name}`}
      className="inline-flex max-w-full items-center gap-1.5 rounded-lg border border-line bg-raised px-2 py-1 text-sm hover:bg-panel"
    >
      <Icon name={failed ? 'warning' : 'file'} className="size-3.5 text-quiet" />
      <span className="truncate">{name}</span>
    </button>
  );
}
