/** A menu behind a button: arrows move, Enter picks, Esc closes and gives the focus back. */

import { type KeyboardEvent, type ReactNode, useEffect, useId, useRef, useState } from 'react';
import { Icon, type IconName } from './icon';

export interface MenuItem {
  label: string;
  icon?: IconName;
  danger?: boolean;
  disabled?: boolean;
  pick: () => void;
}

interface Props {
  label: string;
  items: MenuItem[];
  children: ReactNode;
  className?: string;
  disabled?: boolean;
  /** Which side of the button the menu is flush with. */
  side?: 'left' | 'right';
  /** Above the button rather than below it; where nothing is said, on the side that has more room. */
  up?: boolean;
}

export function Menu({ label, items, children, className = '', disabled = false, side = 'right', up }: Props) {
  const [opened, setOpen] = useState(false);
  const open = opened && !disabled;
  const [above, setAbove] = useState(false);
  const around = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const id = useId();

  useEffect(() => {
    if (disabled) setOpen(false);
  }, [disabled]);
  useEffect(() => {
    if (!open) return;
    list.current?.querySelector<HTMLButtonElement>('button:not(:disabled)')?.focus();
    const outside = (event: PointerEvent) => {
      if (!around.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, [open]);

  const close = () => {
    setOpen(false);
    button.current?.focus();
  };

  const onKeyDown = (event: KeyboardEvent) => {
    if (!open) return;
    const entries = [...(list.current?.querySelectorAll<HTMLButtonElement>('button:not(:disabled)') ?? [])];
    const at = entries.indexOf(document.activeElement as HTMLButtonElement);
    const step = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: entries.length - 1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      entries[(step + entries.length) % entries.length]?.focus();
    } else if (event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      close();
    } else if (event.key === 'Tab') {
      setOpen(false);
    }
  };

  return (
    <div ref={around} className="relative" onKeyDown={onKeyDown}>
      <button
        ref={button}
        type="button"
        aria-label={label}
        title={label}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        disabled={disabled}
        onClick={(event) => {
          setAbove(up ?? event.currentTarget.getBoundingClientRect().top > window.innerHeight / 2);
          setOpen(!open);
        }}
        className={className || 'inline-flex size-8 items-center justify-center rounded-md text-quiet hover:bg-panel hover:text-ink'}
      >
        {children}
      </button>
      {open && (
        <div
          ref={list}
          id={id}
          role="menu"
          aria-label={label}
          className={`absolute z-30 max-h-80 min-w-44 overflow-auto rounded-lg border border-line bg-raised p-1 shadow-lg ${side === 'right' ? 'right-0' : 'left-0'} ${above ? 'bottom-full mb-1' : 'top-full mt-1'}`}
        >
          {items.map((item) => (
            <button
              key={item.label}
              type="button"
              role="menuitem"
              disabled={item.disabled}
              onClick={() => {
                close();
                item.pick();
              }}
              className={`flex w-full items-center gap-2 rounded px-2 py-1.5 text-left text-sm whitespace-nowrap hover:bg-panel focus-visible:bg-panel disabled:opacity-50 ${item.danger ? 'text-bad' : ''}`}
            >
              {item.icon && <Icon name={item.icon} />}
              {item.label}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
