/** The dialogs that can be opened from anywhere, one at a time. */

import { HelpDialog } from '../composer/help_dialog';
import { Palette } from '../palette/palette';
import { SettingsDialog } from '../settings/settings_dialog';
import { SpendDialog } from '../settings/spend_dialog';
import { type Opened, view } from '../state/view';
import { TriggersDialog } from '../triggers/triggers_dialog';

const close = () => view.set({ opened: null });

export function Dialogs({ opened }: { opened: Opened }) {
  if (opened === 'palette') return <Palette onClose={close} />;
  if (opened === 'settings') return <SettingsDialog onClose={close} />;
  if (opened === 'spend') return <SpendDialog onClose={close} />;
  if (opened === 'triggers') return <TriggersDialog onClose={close} />;
  return <HelpDialog onClose={close} />;
}
