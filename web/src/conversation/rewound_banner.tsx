/** A line for undone turns: show them, restore them, or branch from them. */

import { useCallback, useEffect, useState } from 'react';
import { isProblem } from '../api/client';
import type { Message } from '../api/types';
import type { Conversation } from '../state/conversation';
import { useHost } from '../state/host';
import { goTo } from '../state/route';
import { type RewoundGroup, rewoundGroups } from '../state/rewound';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { count } from '../ui/format';
import { useThreadState, useOpen } from './thread_state';
import { PastMessages, Loaded } from './past_messages';

export function RewoundBanner({ id, group }: { id: string; group: RewoundGroup }) {
  const conversation = useThis();
  const thread = useThreadState();
  const [open, setOpen] = useOpen(id);
  const [busy, setBusy] = useState(false);
  const scrollTarget = useStore(thread.store, (state) => (state.scrollTarget?.within === id ? state.scrollTarget.seq : 0));
  useEffect(() => {
    if (scrollTarget > 0) setOpen(true);
  }, [scrollTarget, setOpen]);

  const acting = async (act: () => Promise<void>) => {
    setBusy(true);
    try {
      await act();
    } catch {
      // The notice above the composer shows the error.
    } finally {
      setBusy(false);
    }
  };
  if (group.covered && !open && scrollTarget === 0) return null;
  return (
    <div role="group" aria-label="Undone messages" className="py-1">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-0.5 rounded-md border border-dashed border-line px-3 py-1 text-sm text-quiet">
        <span className="min-w-0 grow basis-56">{count(group.hidden, 'message')} undone</span>
        <span className="flex flex-wrap gap-x-1">
          <BannerButton expanded={open} onClick={() => setOpen(!open)}>
            {open ? 'Hide' : 'Show'}
          </BannerButton>
          <BannerButton disabled={busy} onClick={() => void acting(() => restore(conversation, group))}>
            Restore
          </BannerButton>
          <BannerButton disabled={busy} onClick={() => void acting(async () => goTo({ session: (await conversation.fork(group.tip)).id }))}>
            Branch from these
          </BannerButton>
        </span>
      </div>
      {open && <Hidden group={group} />}
    </div>
  );
}

function BannerButton({ expanded, ...rest }: { expanded?: boolean; disabled?: boolean; onClick: () => void; children: string }) {
  return <button type="button" aria-expanded={expanded} className="rounded px-1 py-0.5 text-thread underline underline-offset-2 disabled:opacity-50" {...rest} />;
}

function Hidden({ group }: { group: RewoundGroup }) {
  const { client } = useHost();
  const conversation = useThis();
  const turns = group.turns.map((turn) => turn.id).join(' ');
  const read = useCallback(async () => {
    const pages = await Promise.all(turns.split(' ').map((id) => client.call('GET /api/turns/{id}/messages', { path: { id } })));
    // A regenerated turn shares its first message with the current path, which shows it already.
    const shown = new Set(conversation.store.get().tree?.turns.flatMap((turn) => (turn.on_line ? turn.messages : [])));
    const hidden = new Map(pages.flatMap((page) => page.messages as unknown as Message[]).map((message) => [message.id, message]));
    return [...hidden.values()].filter((message) => !shown.has(message.id));
  }, [client, conversation, turns]);
  return (
    <div className="pt-2">
      <Loaded read={read}>{(messages) => <PastMessages messages={messages} />}</Loaded>
    </div>
  );
}

/** Undo the last rewind if it hid these turns; otherwise move the head to their end. */
async function restore(conversation: Conversation, group: RewoundGroup): Promise<void> {
  const { tree } = conversation.store.get();
  const createdAt = (candidate: RewoundGroup) => Math.max(...candidate.turns.map((turn) => turn.created_at));
  const newest = rewoundGroups(tree).every((other) => createdAt(other) <= createdAt(group));
  if (newest && group.after === (tree?.head_turn_id ?? null)) {
    try {
      await conversation.unrewind();
      return;
    } catch (error) {
      if (!isProblem(error, 'newer_turns') && !isProblem(error, 'nothing_to_undo')) throw error;
    }
  }
  await conversation.unrewind(group.tip);
}
