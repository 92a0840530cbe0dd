/** Light, dark, or as the system says. */

import { useStore } from '../state/store';
import { type Theme, view } from '../state/view';
import { Icon, type IconName } from '../ui/icon';

const CHOICES: { theme: Theme; icon: IconName; label: string }[] = [
  { theme: 'system', icon: 'auto', label: 'As the system' },
  { theme: 'light', icon: 'sun', label: 'Light' },
  { theme: 'dark', icon: 'moon', label: 'Dark' },
];

export function ThemeSwitch() {
  const theme = useStore(view, (state) => state.theme);
  // There is no room for it beside keys as large as a finger; the settings have it, too.
  return (
    <div role="group" aria-label="Look" className="flex rounded-md border border-line pointer-coarse:hidden">
      {CHOICES.map((choice) => (
        <button
          key={choice.theme}
          type="button"
          aria-label={choice.label}
          title={choice.label}
          aria-pressed={theme === choice.theme}
          onClick={() => view.set({ theme: choice.theme })}
          className={`inline-flex size-7 items-center justify-center rounded-md ${theme === choice.theme ? 'bg-raised text-ink' : 'text-quiet hover:text-ink'}`}
        >
          <Icon name={choice.icon} />
        </button>
      ))}
    </div>
  );
}
