/** The global dialogs, one at a time. */

import { HelpDialog } from '../composer/help_dialog';
import { ImportDialog } from '../importing/import_dialog';
import { SettingsDialog } from '../settings/settings_dialog';
import { SpendDialog } from '../settings/spend_dialog';
import { closeDialog, type DialogName } from '../state/view';
import { TriggersDialog } from '../triggers/triggers_dialog';

export function Dialogs({ dialog }: { dialog: Exclude<DialogName, 'palette'> }) {
  if (dialog === 'settings') return <SettingsDialog onClose={closeDialog} />;
  if (dialog === 'spend') return <SpendDialog onClose={closeDialog} />;
  if (dialog === 'import') return <ImportDialog onClose={closeDialog} />;
  if (dialog === 'triggers') return <TriggersDialog onClose={closeDialog} />;
  return <HelpDialog onClose={closeDialog} />;
}
