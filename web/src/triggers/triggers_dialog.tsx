/** What starts turns that nobody typed: schedules, webhooks, and the ledger of what came in and what came of it. */

import { Dialog } from '../ui/dialog';
import { EventList } from './event_list';
import { Schedules } from './schedules';
import { Webhooks } from './webhooks';

export function TriggersDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Triggers" onClose={onClose} wide>
      <div className="grid grid-cols-1 gap-6">
        <p className="text-sm text-quiet">Nobody is asked during these turns: what would need your word is denied.</p>
        <Schedules />
        <Webhooks />
        <EventList onOpen={onClose} />
      </div>
    </Dialog>
  );
}
