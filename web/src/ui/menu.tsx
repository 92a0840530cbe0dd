/** A menu button. The menu is in the top layer: arrows move, Enter selects, Esc closes and restores the focus. */

import { type KeyboardEvent, type ReactNode, useEffect, useId, useLayoutEffect, useRef, useState } from 'react';
import { Icon, type IconName } from './icon';

export interface MenuItem {
  label: string;
  icon?: IconName;
  danger?: boolean;
  disabled?: boolean;
  pick: () => void;
}

/** Distance to the button and the window edge, in pixels. */
const GAP = 4;

interface Props {
  label: string;
  items: MenuItem[];
  children: ReactNode;
  className?: string;
  disabled?: boolean;
  /** The side of the button that the menu is aligned with. */
  side?: 'left' | 'right';
}

export function Menu({ label, items, children, className = '', disabled = false, side = 'right' }: Props) {
  const [opened, setOpen] = useState(false);
  const open = opened && !disabled;
  const around = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const id = useId();

  useEffect(() => {
    if (disabled) setOpen(false);
  }, [disabled]);
  useLayoutEffect(() => {
    const menu = list.current;
    const from = button.current;
    if (!open || !menu || !from) return;
    // In the top layer no ancestor can clip it.
    menu.showPopover?.();
    const place = () => Object.assign(menu.style, placeMenu(from.getBoundingClientRect(), menu, side));
    place();
    window.addEventListener('scroll', place, { capture: true, passive: true });
    window.addEventListener('resize', place);
    return () => {
      window.removeEventListener('scroll', place, { capture: true });
      window.removeEventListener('resize', place);
    };
  }, [open, side]);
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
        onClick={() => setOpen(!open)}
        className={className || 'inline-flex size-8 items-center justify-center rounded-md text-quiet hover:bg-panel hover:text-ink'}
      >
        {children}
      </button>
      {open && (
        <div
          ref={list}
          id={id}
          role="menu"
          popover="manual"
          aria-label={label}
          className="fixed inset-auto m-0 max-h-80 min-w-44 overflow-auto rounded-lg border border-line bg-raised p-1 text-[15px] text-ink shadow-lg"
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

/** Place the menu below the button, or above it if there is more space, within the window. */
function placeMenu(from: DOMRect, menu: HTMLElement, side: 'left' | 'right'): { left: string; top: string } {
  const { offsetWidth: width, offsetHeight: height } = menu;
  const above = from.bottom + GAP + height > window.innerHeight && from.top > window.innerHeight - from.bottom;
  const left = side === 'right' ? from.right - width : from.left;
  const top = above ? from.top - GAP - height : from.bottom + GAP;
  const within = (at: number, max: number) => `${Math.round(Math.max(GAP, Math.min(at, max - GAP)))}px`;
  return { left: within(left, window.innerWidth - width), top: within(top, window.innerHeight - height) };
}
