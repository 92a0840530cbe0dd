/** A collapsible section. */

import { type ReactNode, useState } from 'react';
import { Icon } from '../ui/icon';

export function Disclosure({ title, note, open: first = false, children }: { title: string; note?: ReactNode; open?: boolean; children: ReactNode }) {
  const [open, setOpen] = useState(first);
  return (
    <section className="border-t border-line">
      <h3>
        <button
          type="button"
          aria-expanded={open}
          onClick={() => setOpen(!open)}
          className="flex w-full items-center gap-2 px-4 py-2 text-left text-sm font-medium hover:bg-raised"
        >
          <Icon name="chevron" className={`size-3.5 transition-transform ${open ? 'rotate-90' : ''}`} />
          <span className="min-w-0 flex-1 truncate">{title}</span>
          <span className="text-xs font-normal text-quiet">{note}</span>
        </button>
      </h3>
      {open && <div className="px-4 pb-3">{children}</div>}
    </section>
  );
}

export function PlainText({ children }: { children: string }) {
  return (
    <pre dir="auto" tabIndex={0} className="max-h-96 overflow-auto rounded-md bg-raised p-2 font-mono text-xs whitespace-pre-wrap [overflow-wrap:anywhere]">
      {children}
    </pre>
  );
}
