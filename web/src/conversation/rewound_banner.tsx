/** Turns that a rewind hid: a thin line that shows them, brings them back, or goes on from them elsewhere. */

import { useCallback, useEffect, useState } from 'react';
import { isProblem } from '../api/client';
import type { Message } from '../api/types';
import type { Conversation } from '../state/conversation';
import { useHost } from '../state/host';
import { goTo } from '../state/route';
import { type RewoundGroup, rewoundGroups } from '../state/rewound';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { count } from '../ui/words';
import { useMemory, useOpen } from './memory';
import { PastMessages, Reading } from './past_messages';

export function RewoundBanner({ id, group }: { id: string; group: RewoundGroup }) {
  const conversation = useThis();
  const memory = useMemory();
  const [open, setOpen] = useOpen(id);
  const [busy, setBusy] = useState(false);
  const landing = useStore(memory.store, (state) => (state.landing?.within === id ? state.landing.asked : 0));
  useEffect(() => {
    if (landing > 0) setOpen(true);
  }, [landing, setOpen]);

  const acting = async (act: () => Promise<void>) => {
    setBusy(true);
    try {
      await act();
    } catch {
      // The notice above the composer says why.
    } finally {
      setBusy(false);
    }
  };
  if (group.covered && !open && landing === 0) return null;
  return (
    <div role="group" aria-label="Hidden by a rewind" className="py-1">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-0.5 rounded-md border border-dashed border-line px-3 py-1 text-sm text-quiet">
        <span className="min-w-0 grow basis-56">{count(group.hidden, 'message')} hidden by {group.ways > 1 ? count(group.ways, 'rewind') : 'a rewind'}</span>
        <span className="flex flex-wrap gap-x-1">
          <BannerButton expanded={open} onClick={() => setOpen(!open)}>
            {open ? 'Hide' : 'Show'}
          </BannerButton>
          <BannerButton disabled={busy} onClick={() => void acting(() => bringBack(conversation, group))}>
            Un-rewind
          </BannerButton>
          <BannerButton disabled={busy} onClick={() => void acting(async () => goTo({ session: (await conversation.fork(group.tip)).id }))}>
            Branch from them
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
    // A turn that was tried again shares its first message with the line, where it is shown already.
    const shown = new Set(conversation.store.get().tree?.turns.flatMap((turn) => (turn.on_line ? turn.messages : [])));
    const hidden = new Map(pages.flatMap((page) => page.messages as unknown as Message[]).map((message) => [message.id, message]));
    return [...hidden.values()].filter((message) => !shown.has(message.id));
  }, [client, conversation, turns]);
  return (
    <div className="pt-2">
      <Reading read={read}>{(messages) => <PastMessages messages={messages} />}</Reading>
    </div>
  );
}

/** Undoes the newest rewind when that is what hid them; otherwise goes to their end. */
async function bringBack(conversation: Conversation, group: RewoundGroup): Promise<void> {
  const { tree } = conversation.store.get();
  const bornAt = (candidate: RewoundGroup) => Math.max(...candidate.turns.map((turn) => turn.created_at));
  const newest = rewoundGroups(tree).every((other) => bornAt(other) <= bornAt(group));
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
