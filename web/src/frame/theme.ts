/** Light or dark: what the system says, unless the reader says otherwise. */

import { useEffect } from 'react';
import { useStore } from '../state/store';
import { view } from '../state/view';

export function useTheme(): void {
  const theme = useStore(view, (state) => state.theme);
  useEffect(() => {
    const system = window.matchMedia('(prefers-color-scheme: dark)');
    const apply = () => {
      document.documentElement.dataset.theme = theme === 'system' ? (system.matches ? 'dark' : 'light') : theme;
    };
    apply();
    system.addEventListener('change', apply);
    return () => system.removeEventListener('change', apply);
  }, [theme]);
}
