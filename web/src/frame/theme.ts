/** Light or dark theme: the system's, unless the user chose one. */

import { useEffect, useSyncExternalStore } from 'react';
import { useStore } from '../state/store';
import { view } from '../state/view';

const DARK = '(prefers-color-scheme: dark)';

export function useTheme(): void {
  const theme = useStore(view, (state) => state.theme);
  useEffect(() => {
    const system = window.matchMedia(DARK);
    const apply = () => {
      document.documentElement.dataset.theme = theme === 'system' ? (system.matches ? 'dark' : 'light') : theme;
    };
    apply();
    system.addEventListener('change', apply);
    return () => system.removeEventListener('change', apply);
  }, [theme]);
}

/** Apply the chosen density. */
export function useDensity(): void {
  const density = useStore(view, (state) => state.density);
  useEffect(() => {
    document.documentElement.dataset.density = density;
  }, [density]);
}

/** Whether the page is dark, for components with their own highlighter. */
export function useDark(): boolean {
  const theme = useStore(view, (state) => state.theme);
  const system = useSyncExternalStore(onSystem, () => window.matchMedia(DARK).matches);
  return theme === 'system' ? system : theme === 'dark';
}

function onSystem(listener: () => void): () => void {
  const system = window.matchMedia(DARK);
  system.addEventListener('change', listener);
  return () => system.removeEventListener('change', listener);
}
