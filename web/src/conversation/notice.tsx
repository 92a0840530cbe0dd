/** The newest error or notice, between the thread and the composer. */

import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Button, IconButton } from '../ui/button';
import { ErrorDetails } from '../ui/error_details';

export function Notice() {
  const conversation = useThis();
  const notice = useStore(conversation.store, (state) => state.notice);
  if (!notice) return null;
  return (
    <div className="mx-auto w-full max-w-3xl px-4 pb-2">
      <div role={notice.bad ? 'alert' : 'status'} className={`flex items-center gap-2 rounded-lg py-1 pr-1 pl-3 text-sm ${notice.bad ? 'bg-bad-soft text-bad' : 'bg-panel text-quiet'}`}>
        <span dir="auto" className="min-w-0 flex-1 break-words">
          {notice.text}
          {notice.details && <ErrorDetails text={notice.details} />}
        </span>
        {notice.action && (
          <Button tone="quiet" className="underline" onClick={notice.action.run}>
            {notice.action.label}
          </Button>
        )}
        <IconButton label="Dismiss" icon="close" className={notice.bad ? '!text-bad' : ''} onClick={() => conversation.notify(null)} />
      </div>
    </div>
  );
}
