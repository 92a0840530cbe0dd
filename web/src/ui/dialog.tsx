/** A native modal dialog: it traps the focus, Esc closes it, and the focus is restored. */

import { type ReactNode, useEffect, useId, useRef, useState } from 'react';
import { IconButton } from './button';

interface Props {
  title: string;
  onClose: () => void;
  children: ReactNode;
  wide?: boolean;
  /** Replaces the visible title, which stays available to screen readers. */
  head?: ReactNode;
}

export function Dialog({ title, onClose, children, wide = false, head }: Props) {
  const ref = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const [before] = useState(() => document.activeElement);
  useEffect(() => {
    const dialog = ref.current;
    if (!dialog || dialog.open) return;
    // `showModal` moves the focus; restore the element that React focused.
    const focused = dialog.contains(document.activeElement) ? (document.activeElement as HTMLElement) : null;
    dialog.showModal();
    focused?.focus();
  }, []);
  useEffect(
    () => () => {
      // The dialog is unmounted, not closed, so the browser does not restore the focus.
      if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
    },
    [before],
  );
  return (
    <dialog
      ref={ref}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      // A click on the backdrop is a click on the dialog element itself.
      onClick={(event) => event.target === ref.current && onClose()}
      className={`m-auto max-h-[85dvh] w-[calc(100%-2rem)] overflow-hidden rounded-xl border border-line bg-raised p-0 text-[15px] text-ink shadow-xl backdrop:bg-shade ${wide ? 'max-w-5xl' : 'max-w-md'}`}
    >
      {/* Without the border: only what is below the title scrolls. */}
      <div className="flex max-h-[calc(85dvh-2px)] flex-col">
        <header className="flex items-center justify-between gap-2 border-b border-line px-4 py-2">
          <h2 id={heading} className={head ? 'sr-only' : 'min-w-0 truncate font-semibold'}>
            {title}
          </h2>
          {head}
          <IconButton label="Close" icon="close" onClick={onClose} />
        </header>
        <div tabIndex={0} className="min-h-0 overflow-auto p-4 outline-offset-[-2px]">{children}</div>
      </div>
    </dialog>
  );
}
