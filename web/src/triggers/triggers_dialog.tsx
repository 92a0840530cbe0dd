/** What starts turns that nobody typed: schedules, webhooks, and the ledger of what came in and what came of it. */

import { Dialog } from '../ui/dialog';
import { EventList } from './event_list';
import { Schedules } from './schedules';
import { Webhooks } from './webhooks';

export function TriggersDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Triggers" onClose={onClose} wide>
      <div className="grid grid-cols-1 gap-6">
        <p className="text-sm text-quiet">
          A trigger starts a turn that nobody typed: at set times, or when another program calls. Each turn runs with the default model in
          the folder of this server. Nobody is asked meanwhile: what would need your word is denied.
        </p>
        <Schedules />
        <Webhooks />
        <EventList onOpen={onClose} />
      </div>
    </Dialog>
  );
}
