/** Switches between the light, dark and system theme. */

import { useStore } from '../state/store';
import { type Theme, view } from '../state/view';
import { Icon, type IconName } from '../ui/icon';

const CHOICES: { theme: Theme; icon: IconName; label: string }[] = [
  { theme: 'system', icon: 'auto', label: 'System' },
  { theme: 'light', icon: 'sun', label: 'Light' },
  { theme: 'dark', icon: 'moon', label: 'Dark' },
];

export function ThemeSwitch() {
  const theme = useStore(view, (state) => state.theme);
  // Hidden on touch screens, where the buttons are larger; the settings have it too.
  return (
    <div role="group" aria-label="Theme" className="flex rounded-md border border-line pointer-coarse:hidden">
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
