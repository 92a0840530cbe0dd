/** An image that opens in a dialog. */

import { useState } from 'react';
import { Dialog } from './dialog';

export function LargePicture({ src, alt, className = '' }: { src: string; alt: string; className?: string }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" aria-label={`Open large: ${alt}`} title="Open large" onClick={() => setOpen(true)} className="block max-w-full cursor-zoom-in rounded-lg">
        <img src={src} alt={alt} className={className} />
      </button>
      {open && (
        <Dialog title={alt} onClose={() => setOpen(false)} wide>
          <img src={src} alt={alt} className="mx-auto h-auto max-w-full" />
        </Dialog>
      )}
    </>
  );
}
