/** Triggers: schedules, webhooks and the event ledger. */

import { Dialog } from '../ui/dialog';
import { EventList } from './event_list';
import { Schedules } from './schedules';
import { Webhooks } from './webhooks';

export function TriggersDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Triggers" onClose={onClose} wide>
      <div className="grid grid-cols-1 gap-6">
        <p className="text-sm text-quiet">
          A trigger starts a turn automatically: at set times, or when another program calls. Each turn runs with the default model in
          the server’s folder. Calls that need approval are denied.
        </p>
        <Schedules />
        <Webhooks />
        <EventList onOpen={onClose} />
      </div>
    </Dialog>
  );
}
