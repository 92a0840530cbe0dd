/** A file of a message: an image, or a chip that downloads it. */

import type { FileUIPart } from 'ai';
import { useState } from 'react';
import { useHost } from '../state/host';
import { Icon } from '../ui/icon';
import { LargePicture } from '../ui/large_picture';
import { revokeLater } from '../ui/object_url';
import { bytesOf, isPicture, usePicture } from './blob';

export function Attachment({ part }: { part: FileUIPart }) {
  return isPicture(part) ? <Picture part={part} /> : <FileChip part={part} />;
}

/** Return the file name. Files from tools have it in clew's metadata: the stream format has no field for it. */
function nameOf(part: FileUIPart): string | undefined {
  const storedName = part.providerMetadata?.clew?.name;
  return part.filename ?? (typeof storedName === 'string' ? storedName : undefined);
}

function Picture({ part }: { part: FileUIPart }) {
  const src = usePicture(part);
  if (src === false) return <FileChip part={part} />;
  // Reserve the height before the image loads.
  return (
    <span className="inline-flex h-40 min-w-20 items-center justify-center overflow-hidden rounded-lg border border-line bg-panel">
      {src && <LargePicture src={src} alt={nameOf(part) ?? 'Attached image'} className="h-40 max-w-full object-contain" />}
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
      revokeLater(url);
      setFailed(false);
    } catch {
      setFailed(true);
    }
  };
  return (
    <button
      type="button"
      onClick={() => void save()}
      title={failed ? 'Could not read this file' : `Save ${name}`}
      className="inline-flex max-w-full items-center gap-1.5 rounded-lg border border-line bg-raised px-2 py-1 text-sm hover:bg-panel"
    >
      <Icon name={failed ? 'warning' : 'file'} className="size-3.5 text-quiet" />
      <span className="truncate">{name}</span>
    </button>
  );
}
