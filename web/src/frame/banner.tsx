/** Shown while the server is unreachable, and for errors of the host. */

import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { Button } from '../ui/button';
import { Icon } from '../ui/icon';

export function Banner() {
  const host = useHost();
  const online = useStore(host.store, (state) => state.online);
  const notice = useStore(host.store, (state) => state.notice);
  if (online === false) {
    return (
      <div role="status" className="flex items-center justify-center gap-3 bg-warn-soft px-4 py-1.5 text-sm text-warn">
        <Icon name="warning" />
        <span>Reconnecting… Nothing you typed is lost.</span>
        <Button tone="quiet" className="text-warn underline" onClick={() => host.retryNow()}>
          Retry now
        </Button>
      </div>
    );
  }
  if (notice) {
    return (
      <div role="alert" className="flex items-center justify-center gap-3 bg-bad-soft px-4 py-1.5 text-sm text-bad">
        <span className="min-w-0 break-words">{notice}</span>
        <Button tone="quiet" className="text-bad underline" onClick={() => host.store.set({ notice: null })}>
          Dismiss
        </Button>
      </div>
    );
  }
  return null;
}
