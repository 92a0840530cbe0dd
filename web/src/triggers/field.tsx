/** A labelled line of a form. */

import type { InputHTMLAttributes } from 'react';

export function Field({ label, hint, ...rest }: InputHTMLAttributes<HTMLInputElement> & { label: string; hint?: string }) {
  return (
    <label className="grid min-w-0 flex-1 basis-40 gap-1 text-sm">
      <span className="font-medium">{label}</span>
      <input {...rest} className="w-full min-w-0 rounded-md border border-line bg-paper px-2 py-1" />
      {hint && <span className="text-xs text-quiet">{hint}</span>}
    </label>
  );
}
