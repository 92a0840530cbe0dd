/** The focus is never lost: when what had it goes away, it moves to the nearest thing that is left. */

import { useEffect } from 'react';
import { focusQuietly } from '../ui/composer_field';

/** Where the focus is at home in a part of the page: the field of the composer, the open session of the list. */
const HOME = '[data-home]';

export function useFocusKeeper(): void {
  useEffect(() => {
    // What has the focus, and all it is in.
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
    const look = () => {
      const [at] = path;
      if (!at || isSomewhere()) return;
      if (!at.isConnected) {
        moveNear(path);
      } else if (at.matches(':disabled')) {
        disabled = true;
      } else if (disabled) {
        disabled = false;
        at.focus({ preventScroll: true });
      }
    };
    const changes = new MutationObserver(look);
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

function isSomewhere(): boolean {
  return document.activeElement !== null && document.activeElement !== document.body;
}

function moveNear(path: readonly HTMLElement[]): void {
  for (const around of path) {
    if (!around.isConnected) continue;
    const place = around.hasAttribute('tabindex') ? around : around.querySelector<HTMLElement>(around.querySelector('main') ? `main ${HOME}` : HOME);
    focusQuietly(place);
    if (isSomewhere()) return;
  }
}
