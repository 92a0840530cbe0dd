/** The model for the next message. The list opens over the whole composer. */

import { useEffect, useRef } from 'react';
import { Icon } from '../ui/icon';
import { ModelList } from './model_list';

interface Props {
  shown: string;
  /** Whether it differs from the session's model. */
  changed: boolean;
  open: boolean;
  onOpen: (open: boolean) => void;
  onPick: (name: string) => void;
}

export function ModelPicker({ shown, changed, open, onOpen, onPick }: Props) {
  const around = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!open) return;
    const outside = (event: PointerEvent) => {
      if (!around.current?.contains(event.target as Node)) onOpen(false);
    };
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, [open, onOpen]);
  const close = () => {
    onOpen(false);
    button.current?.focus();
  };
  return (
    <div ref={around} className="min-w-0" onBlur={(event) => open && event.relatedTarget && !event.currentTarget.contains(event.relatedTarget) && onOpen(false)}>
      <button
        ref={button}
        type="button"
        aria-haspopup="dialog"
        aria-expanded={open}
        aria-label={`Model: ${shown || 'unknown'}`}
        title={changed ? 'For the next message; differs from the session’s model' : 'Model for the next message'}
        onClick={() => onOpen(!open)}
        className={`flex max-w-full items-center gap-1 rounded-md px-2 py-1 text-sm hover:bg-panel ${changed ? 'text-thread' : 'text-quiet hover:text-ink'}`}
      >
        <span className="truncate">{shown || 'Model'}</span>
        <Icon name="chevron" className="size-3 rotate-90" />
      </button>
      {open && (
        <ModelList
          shown={shown}
          onPick={(name) => {
            onPick(name);
            close();
          }}
          onClose={close}
        />
      )}
    </div>
  );
}
