/** Copies a text and shows the result briefly. */

import { useEffect, useState } from 'react';
import { Icon } from '../ui/icon';

interface Props {
  /** Read when pressed: the text may still be streaming. */
  text: () => string;
  label: string;
  disabled?: boolean;
  className?: string;
}

export function CopyButton({ text, label, disabled, className = '' }: Props) {
  const [result, setResult] = useState<'copied' | 'failed' | null>(null);
  useEffect(() => {
    if (result === null) return;
    const timer = setTimeout(() => setResult(null), 1600);
    return () => clearTimeout(timer);
  }, [result]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      setResult('copied');
    } catch {
      setResult('failed');
    }
  };
  const title = result === 'copied' ? 'Copied' : result === 'failed' ? 'The browser blocked copying' : label;
  return (
    <button
      type="button"
      aria-label={title}
      title={title}
      disabled={disabled}
      onClick={() => void copy()}
      className={`inline-flex size-7 shrink-0 items-center justify-center rounded-md text-quiet hover:bg-panel hover:text-ink disabled:opacity-50 ${className}`}
    >
      <Icon name={result === 'copied' ? 'check' : result === 'failed' ? 'warning' : 'copy'} className="size-3.5" />
    </button>
  );
}
