/** Form fields with labels. */

import type { InputHTMLAttributes } from 'react';

export function Field({ label, hint, ...rest }: InputHTMLAttributes<HTMLInputElement> & { label: string; hint?: string }) {
  return (
    <label className="grid min-w-0 flex-1 basis-40 gap-1 text-sm">
      <span className="font-medium">{label}</span>
      <input {...rest} className="w-full min-w-0 h-9 rounded-md border border-line bg-paper px-2 py-1" />
      {hint && <span className="text-xs text-quiet">{hint}</span>}
    </label>
  );
}

interface SelectProps {
  label: string;
  value: string;
  options: readonly (readonly [string, string])[];
  onChange: (value: string) => void;
}

export function Select({ label, value, options, onChange }: SelectProps) {
  return (
    <label className="grid min-w-0 flex-1 basis-40 gap-1 text-sm">
      <span className="font-medium">{label}</span>
      <select value={value} onChange={(event) => onChange(event.target.value)} className="w-full min-w-0 h-9 rounded-md border border-line bg-paper px-2 py-1">
        {options.map(([name, label]) => (
          <option key={name} value={name}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}
