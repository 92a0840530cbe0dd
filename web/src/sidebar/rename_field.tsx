/** An inline title editor: Enter or leaving the field saves, Esc cancels. */

import { useRef } from 'react';

interface Props {
  title: string | null;
  onDone: (title: string | null) => void;
  className?: string;
}

export function RenameField({ title, onDone, className = '' }: Props) {
  const finished = useRef(false);
  const finish = (value: string | null) => {
    if (finished.current) return;
    finished.current = true;
    onDone(value === null || value.trim() === (title ?? '') ? null : value.trim());
  };
  return (
    <input
      autoFocus
      aria-label="Session title"
      dir="auto"
      maxLength={200}
      defaultValue={title ?? ''}
      onFocus={(event) => event.target.select()}
      onBlur={(event) => finish(event.target.value)}
      onKeyDown={(event) => {
        event.stopPropagation();
        if (event.nativeEvent.isComposing) return;
        if (event.key === 'Enter') finish(event.currentTarget.value);
        else if (event.key === 'Escape') finish(null);
        else return;
        event.preventDefault();
      }}
      className={`w-full min-w-0 rounded border border-line bg-raised px-1.5 py-0.5 ${className}`}
    />
  );
}
