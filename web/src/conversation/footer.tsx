/** Shown below the last message: waiting, retrying or failed. */

import { type Failure, failureText } from '../api/failure';
import type { Message, Status } from '../api/types';
import { useNow } from '../sidebar/now';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { activityText, retryAt } from '../top/status_labels';
import { Icon } from '../ui/icon';
import { Pulse } from '../ui/pulse';
import { isEmptyMessage } from './steps';
import { NewestEnd } from './turn_end';

export function ThreadFooter({ last, busy }: { last: Message | undefined; busy: boolean }) {
  const conversation = useThis();
  const status = useStore(conversation.store, (state) => state.status);
  const quiet = !last || last.role === 'user' || isEmptyMessage(last);
  const activity = activityText(status);
  return (
    <div className="mx-auto w-full max-w-3xl px-4 pb-6">
      {status.state === 'retrying' ? (
        <Retrying status={status} />
      ) : activity ? (
        <p role="status" className="py-1.5 text-sm text-quiet">
          <Pulse />
          {activity}
        </p>
      ) : (
        busy && quiet && (
          <p className="py-1.5">
            <span className="sr-only">Waiting for the answer</span>
            <span aria-hidden="true" className="clew-breath text-xl leading-none tracking-widest text-quiet">
              …
            </span>
          </p>
        )
      )}
      {!busy && <NewestEnd last={last} />}
    </div>
  );
}

/** The error and the seconds until the retry. The countdown is hidden from screen readers, which would announce every second. */
function Retrying({ status }: { status: Status }) {
  const at = retryAt(status);
  const now = useNow(at === null ? null : 250);
  const left = at === null ? null : Math.max(0, Math.ceil((at - now) / 1000));
  const { summary } = status.problem ? failureText(status.problem as Failure) : { summary: 'The provider did not answer.' };
  return (
    <p className="flex items-center gap-2 py-1.5 text-sm text-warn">
      <Icon name="retry" className="size-3.5" />
      <span className="min-w-0 break-words">
        <span role="status">{summary} Retrying</span>
        {left !== null && (
          <span aria-hidden="true" className="tabular-nums">
            {left > 0 ? ` in ${left} s` : ' now'}
          </span>
        )}
        {status.attempt ? `, attempt ${status.attempt}` : ''}
      </span>
    </p>
  );
}
