/** A section of the dialog, with its error. */

import type { ReactNode } from 'react';

export function Section({ title, error, children }: { title: string; error: string | null; children: ReactNode }) {
  return (
    <section aria-label={title} className="grid min-w-0 grid-cols-1 gap-2">
      <h3 className="font-semibold">{title}</h3>
      {error && (
        <p role="alert" className="rounded-md bg-bad-soft px-3 py-1 text-sm break-words text-bad">
          {error}
        </p>
      )}
      {children}
    </section>
  );
}
