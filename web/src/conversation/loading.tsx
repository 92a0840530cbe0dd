/** Shown instead of messages that have not loaded: a skeleton, or the error with a retry. */

import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';

/** Line widths of the skeleton, in percent: a question and its answer. */
const LINES = [38, 0, 92, 84, 88, 60];

export function Loading() {
  const conversation = useThis();
  const failed = useStore(conversation.store, (state) => state.failed);
  const retry = () => {
    conversation.store.set({ failed: null });
    void conversation.open();
  };
  if (failed) {
    return (
      <div role="alert" className="mx-auto grid w-full max-w-3xl justify-items-start gap-2 px-4 py-4">
        <p className="font-medium">Could not load this session</p>
        <p className="text-sm break-words text-quiet">
          {failed.summary} {failed.hint}
        </p>
        <Button icon="retry" onClick={retry}>
          Retry
        </Button>
      </div>
    );
  }
  return (
    <div role="status" aria-label="Loading messages" className="clew-skeleton mx-auto grid w-full max-w-3xl gap-3 px-4 py-3">
      {LINES.map((width, index) => (
        <span key={index} className={`h-3.5 rounded bg-line ${index === 0 ? 'ms-auto h-8' : ''}`} style={{ width: `${width}%` }} />
      ))}
    </div>
  );
}
