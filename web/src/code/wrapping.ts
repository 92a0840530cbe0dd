/** The line wrap setting of all code blocks, stored in this browser. */

import { Store, useStore } from '../state/store';

const KEY = 'clew.wrap';

function load(): boolean {
  try {
    return window.localStorage.getItem(KEY) === 'yes';
  } catch {
    return false;
  }
}

const wrapping = new Store<{ on: boolean }>({ on: load() });

export function useWrapping(): [boolean, () => void] {
  const on = useStore(wrapping, (state) => state.on);
  return [
    on,
    () => {
      wrapping.set({ on: !on });
      try {
        window.localStorage.setItem(KEY, on ? 'no' : 'yes');
      } catch {
        // Not stored; it applies to this page only.
      }
    },
  ];
}
