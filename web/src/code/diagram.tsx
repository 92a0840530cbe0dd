/** A Mermaid diagram as an image, with a button for its source. The source is shown until it is drawn, or if it cannot be. */

import { type ReactNode, useEffect, useState } from 'react';
import { useDark } from '../frame/theme';
import { LargePicture } from '../ui/large_picture';
import { revokeLater } from '../ui/object_url';
import { diagrams } from './diagram_frame';

const MAX_CHARACTERS = 20_000;
/** Time that the source must be unchanged before it is drawn. */
const DEBOUNCE_MS = 300;

export function Diagram({ code, fallback }: { code: string; fallback: ReactNode }) {
  const dark = useDark();
  const [picture, setPicture] = useState<{ code: string; dark: boolean; url: string } | null>(null);
  const [asText, setAsText] = useState(false);

  useEffect(() => {
    if (code.length > MAX_CHARACTERS) return;
    let cancel: (() => void) | undefined;
    const timer = setTimeout(() => {
      cancel = diagrams.draw(code, dark, (svg) => setPicture(svg === null ? null : { code, dark, url: URL.createObjectURL(new Blob([svg], { type: 'image/svg+xml' })) }));
    }, DEBOUNCE_MS);
    return () => {
      clearTimeout(timer);
      cancel?.();
    };
  }, [code, dark]);
  useEffect(() => () => (picture ? revokeLater(picture.url) : undefined), [picture]);

  if (!picture || picture.code !== code) return fallback;
  return (
    <figure className="my-2.5">
      {asText ? fallback : <LargePicture src={picture.url} alt="Diagram" className="max-h-[60vh] w-full rounded-lg border border-line bg-raised object-contain p-2" />}
      <button type="button" aria-pressed={asText} className="mt-1 rounded px-1 text-sm text-thread underline underline-offset-2" onClick={() => setAsText(!asText)}>
        {asText ? 'Show diagram' : 'Show source'}
      </button>
    </figure>
  );
}
