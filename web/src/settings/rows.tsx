/** Sections and rows of the settings. */

import { type ReactNode, useId } from 'react';

interface SectionProps {
  title: string;
  note: string;
  error?: string | null;
  children: ReactNode;
}

export function Section({ title, note, error = null, children }: SectionProps) {
  return (
    <section aria-label={title} className="grid min-w-0 grid-cols-1 gap-2">
      <h3 className="font-semibold">{title}</h3>
      <p className="text-sm [overflow-wrap:anywhere] text-quiet">{note}</p>
      {error && (
        <p role="alert" className="rounded-md bg-bad-soft px-3 py-1 text-sm break-words text-bad">
          {error}
        </p>
      )}
      {children}
    </section>
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  options: readonly (readonly [string, string])[];
  onChange: (value: string) => void;
}

export function Choice({ label, value, options, onChange }: ChoiceProps) {
  const id = useId();
  return (
    <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
      <label htmlFor={id} className="w-32 shrink-0">
        {label}
      </label>
      <select id={id} value={value} onChange={(event) => onChange(event.target.value)} className="min-w-44 max-w-full rounded-md border border-line bg-paper px-2 py-1">
        {options.map(([name, label]) => (
          <option key={name} value={name}>
            {label}
          </option>
        ))}
      </select>
    </div>
  );
}

export function Toggle({ label, on, onChange }: { label: string; on: boolean; onChange: (on: boolean) => void }) {
  return (
    <label className="flex cursor-pointer items-center gap-2">
      <input type="checkbox" checked={on} onChange={(event) => onChange(event.target.checked)} className="size-4 accent-thread" />
      {label}
    </label>
  );
}
