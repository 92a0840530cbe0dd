/** The global dialogs, one at a time. */

import { HelpDialog } from '../composer/help_dialog';
import { ImportDialog } from '../importing/import_dialog';
import { SettingsDialog } from '../settings/settings_dialog';
import { SpendDialog } from '../settings/spend_dialog';
import { closeDialog, type Opened } from '../state/view';
import { TriggersDialog } from '../triggers/triggers_dialog';

export function Dialogs({ opened }: { opened: Exclude<Opened, 'palette'> }) {
  if (opened === 'settings') return <SettingsDialog onClose={closeDialog} />;
  if (opened === 'spend') return <SpendDialog onClose={closeDialog} />;
  if (opened === 'import') return <ImportDialog onClose={closeDialog} />;
  if (opened === 'triggers') return <TriggersDialog onClose={closeDialog} />;
  return <HelpDialog onClose={closeDialog} />;
}
