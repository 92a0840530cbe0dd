/** Two versions of a conversation, turn next to turn in one list, so that they scroll together; stacked on narrow screens. */

import { lazy, Suspense, useCallback, useMemo, useState } from 'react';
import type { Message } from '../api/types';
import { AssistantMessage } from '../conversation/assistant_message';
import { ThreadState, ThreadStateContext } from '../conversation/thread_state';
import { Loaded } from '../conversation/past_messages';
import { UserMessage } from '../conversation/user_message';
import { useHost } from '../state/host';
import { goTo } from '../state/route';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { view } from '../state/view';
import { Button } from '../ui/button';
import { Dialog } from '../ui/dialog';
import { count } from '../ui/format';
import { readSide } from './compare';
import { splitDiff } from './split_diff';

// Loaded on first use.
const ComparedFiles = lazy(() => import('../files/compared_files').then((module) => ({ default: module.ComparedFiles })));

export function CompareDialog() {
  const compared = useStore(view, (state) => state.compared);
  return compared && <Compared key={compared.shown.join()} compared={compared} />;
}

function Compared({ compared: { sides, shown } }: { compared: NonNullable<ReturnType<typeof view.get>['compared']> }) {
  const { client } = useHost();
  const conversation = useThis();
  const [thread] = useState(() => new ThreadState());
  const [left, right] = [sides[shown[0]]!, sides[shown[1]]!];
  const read = useCallback(async () => {
    const [one, other] = await Promise.all([readSide(client, left), readSide(client, right)]);
    return { ...splitDiff(one, other), saved: [one, other].every(hasSnapshots) };
  }, [client, left, right]);
  const close = () => view.set({ compared: null });
  const side = right.session ?? null;
  return (
    <Dialog title="Compare versions" onClose={close} wide>
      <div className="mb-3 flex flex-wrap items-center gap-2 text-sm">
        {sides.length > 2 ? (
          <label className="flex items-center gap-2">
            Compare with
            <select value={shown[0]} onChange={(event) => view.set({ compared: { sides, shown: [Number(event.target.value), shown[1]] } })} className="rounded-md border border-line bg-raised px-2 py-1">
              {sides.map((side, index) => index !== shown[1] && <option key={index} value={index}>{side.name}</option>)}
            </select>
          </label>
        ) : null}
        {side && (
          <Button className="max-lg:hidden" icon="sidecar" onClick={() => { close(); goTo({ session: conversation.id, side }); }}>
            Open side by side
          </Button>
        )}
      </div>
      <ThreadStateContext value={thread}>
        <Loaded read={read}>
          {({ common, rows, saved }) => (
            <div className="grid gap-3">
              {saved && left.session && right.session && (
                <Suspense>
                  <ComparedFiles left={left.session} right={right.session} />
                </Suspense>
              )}
              {common > 0 && <p className="text-sm text-quiet">{count(common, 'message is', 'messages are')} identical.</p>}
              <div role="separator" aria-label={rows.length > 0 ? 'Differs from here' : 'Identical'} className="flex items-center gap-3 text-xs text-thread before:h-px before:flex-1 before:bg-thread after:h-px after:flex-1 after:bg-thread">
                {rows.length > 0 ? 'Differs from here' : 'Identical'}
              </div>
              {rows.map(([one, other], index) => (
                <div key={index} className="grid gap-3 md:grid-cols-2">
                  <Side name={left.name} messages={one} />
                  <Side name={right.name} messages={other} />
                </div>
              ))}
            </div>
          )}
        </Loaded>
      </ThreadStateContext>
    </Dialog>
  );
}

/** Whether the workspace was saved for one of the messages. */
function hasSnapshots(messages: readonly Message[]): boolean {
  return messages.some((message) => message.metadata?.snapshot_id !== undefined);
}

function Side({ name, messages }: { name: string; messages: Message[] }) {
  const rendered = useMemo(
    () => messages.map((message) => (message.role === 'user' ? <UserMessage key={message.id} message={message} past /> : <AssistantMessage key={message.id} message={message} past />)),
    [messages],
  );
  return (
    <section aria-label={name} className="min-w-0 rounded-lg border border-line bg-paper px-3 pb-2">
      <h3 dir="auto" className="truncate border-b border-line py-1 text-xs font-medium text-quiet">
        {name}
      </h3>
      {rendered}
      {messages.length === 0 && <p className="py-2 text-sm text-quiet">No more messages</p>}
    </section>
  );
}
