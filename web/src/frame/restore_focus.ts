/** Restores a lost focus: when the focused element is removed, focus the nearest remaining one. */

import { useEffect } from 'react';
import { focusQuietly } from '../ui/composer_field';

/** The default focus target of a region: the composer, the open session in the list. */
const HOME = '[data-home]';

export function useRestoreFocus(): void {
  useEffect(() => {
    // The focused element and its ancestors.
    let path: HTMLElement[] = [];
    let disabled = false;
    const remember = (event: FocusEvent) => {
      path = [];
      disabled = false;
      for (let at = event.target as HTMLElement | null; at; at = at.parentElement) path.push(at);
    };
    const forget = () => {
      path = [];
    };
    const restore = () => {
      const [at] = path;
      if (!at || hasFocus()) return;
      if (!at.isConnected) {
        focusNearest(path);
      } else if (at.matches(':disabled')) {
        disabled = true;
      } else if (disabled) {
        disabled = false;
        at.focus({ preventScroll: true });
      }
    };
    const changes = new MutationObserver(restore);
    changes.observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ['disabled'] });
    document.addEventListener('focusin', remember);
    document.addEventListener('pointerdown', forget);
    return () => {
      changes.disconnect();
      document.removeEventListener('focusin', remember);
      document.removeEventListener('pointerdown', forget);
    };
  }, []);
}

function hasFocus(): boolean {
  return document.activeElement !== null && document.activeElement !== document.body;
}

function focusNearest(path: readonly HTMLElement[]): void {
  for (const around of path) {
    if (!around.isConnected) continue;
    const target = around.hasAttribute('tabindex') ? around : around.querySelector<HTMLElement>(around.querySelector('main') ? `main ${HOME}` : HOME);
    focusQuietly(target);
    if (hasFocus()) return;
  }
}
