/** The newest refusal, between the thread and the composer. */

import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { IconButton } from '../ui/button';

export function Notice() {
  const conversation = useThis();
  const notice = useStore(conversation.store, (state) => state.notice);
  if (!notice) return null;
  return (
    <div className="mx-auto w-full max-w-3xl px-4 pb-2">
      <div role="alert" className="flex items-center gap-2 rounded-lg bg-bad-soft py-1 pr-1 pl-3 text-sm text-bad">
        <span dir="auto" className="min-w-0 flex-1 break-words">
          {notice}
        </span>
        <IconButton label="Dismiss" icon="close" className="!text-bad" onClick={() => conversation.say(null)} />
      </div>
    </div>
  );
}
