/** Accepts files dropped anywhere on the pane. */

import { type RefObject, useEffect, useState } from 'react';

export function useDrop(inside: RefObject<HTMLElement | null>, onFiles: (files: File[]) => void): boolean {
  const [over, setOver] = useState(false);
  useEffect(() => {
    const pane = inside.current?.closest<HTMLElement>('main, [aria-label="Side conversation"]') ?? inside.current;
    if (!pane) return;
    const holdsFiles = (event: DragEvent) => event.dataTransfer?.types.includes('Files') ?? false;
    const onOver = (event: DragEvent) => {
      if (!holdsFiles(event)) return;
      event.preventDefault();
      setOver(true);
    };
    const onLeave = (event: DragEvent) => {
      if (!pane.contains(event.relatedTarget as Node | null)) setOver(false);
    };
    const onDrop = (event: DragEvent) => {
      setOver(false);
      if (!holdsFiles(event)) return;
      event.preventDefault();
      onFiles([...(event.dataTransfer?.files ?? [])]);
    };
    pane.addEventListener('dragover', onOver);
    pane.addEventListener('dragleave', onLeave);
    pane.addEventListener('drop', onDrop);
    return () => {
      pane.removeEventListener('dragover', onOver);
      pane.removeEventListener('dragleave', onLeave);
      pane.removeEventListener('drop', onDrop);
    };
  }, [inside, onFiles]);
  return over;
}
