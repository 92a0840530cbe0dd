/** The state of the session, with a countdown to the next retry. */

import { useNow } from '../sidebar/now';
import { StateDot } from '../sidebar/state_dot';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { retryAt, statusLabels } from './status_labels';

const CLASSES = { idle: '', busy: 'text-info', retrying: 'text-warn', waiting: 'text-thread', error: 'text-bad' } as const;

export function StatusLine() {
  const conversation = useThis();
  const status = useStore(conversation.store, (state) => state.status);
  const now = useNow(retryAt(status) === null ? null : 500);
  const { state, label, detail } = statusLabels(status, now);
  return (
    <span className={`flex shrink-0 items-center gap-1.5 ${state === 'idle' ? '' : 'me-2'} ${CLASSES[state]}`}>
      {state !== 'idle' && (
        <span aria-hidden="true" className="flex">
          <StateDot status={status} />
        </span>
      )}
      {/* Announce the label only: the countdown would be announced every second. */}
      <span role="status" className="shrink-0 whitespace-nowrap">
        {state === 'idle' ? '' : label}
      </span>
      {detail && (
        <span dir="auto" className="max-w-32 truncate @2xl:max-w-64" title={detail}>
          {detail}
        </span>
      )}
    </span>
  );
}
