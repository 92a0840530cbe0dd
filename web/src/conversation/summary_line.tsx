/** Earlier turns, summarised for the model: a line that opens to the summary and to every word it stands for. */

import { useCallback, useEffect } from 'react';
import type { Message } from '../api/types';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { count, tokens } from '../ui/words';
import { FoldButton } from './fold_button';
import { Markdown } from './markdown';
import { useMemory, useOpen } from './memory';
import { PastMessages, Reading } from './past_messages';

interface Compaction {
  summary?: string;
  turns?: number;
  /** With those of the summary that it carries on. */
  turns_in_all?: number;
  previous_id?: string;
  messages?: number;
  tokens_before?: number;
  tokens_after?: number;
  auto?: boolean;
  focus?: string;
  warning?: string;
}

export function SummaryLine({ id, message }: { id: string; message: Message }) {
  const part = message.parts.find((candidate) => candidate.type === 'data-compaction') as { data?: Compaction } | undefined;
  const data = part?.data ?? {};
  const memory = useMemory();
  const landing = useStore(memory.store, (state) => (state.landing?.within === id && state.landing.messageId !== message.id ? state.landing.asked : 0));
  return <Summary messageId={message.id} data={data} seeking={landing} />;
}

/** `seeking` is a landing on one of the messages it stands for, or on one further back. */
function Summary({ messageId, data, seeking }: { messageId: string; data: Compaction; seeking: number }) {
  const [open, setOpen] = useOpen(`summary ${messageId}`);
  const [shown, setShown] = useOpen(`summarised ${messageId}`);
  useEffect(() => {
    if (seeking === 0) return;
    setOpen(true);
    setShown(true);
  }, [seeking, setOpen, setShown]);
  return (
    <div role="group" aria-label="Summary of earlier turns" className="py-2" data-message={messageId}>
      <div className="flex items-center gap-3">
        <span className="h-px flex-1 bg-line" />
        <FoldButton open={open} onChange={setOpen} className="px-1 text-sm text-quiet hover:text-ink">
          {summarised(data)}
        </FoldButton>
        <span className="h-px flex-1 bg-line" />
      </div>
      {open && (
        <div className="mt-2 grid min-w-0 gap-3 rounded-lg border border-line bg-raised px-4 py-3">
          <p className="text-xs text-quiet">{figures(data)}</p>
          {data.warning && <p className="text-sm text-warn">{data.warning}</p>}
          <div className="min-w-0 text-sm">
            <Markdown text={data.summary ?? 'The summary is not here.'} />
          </div>
          <FoldButton open={shown} onChange={setShown} className="justify-self-start text-sm text-thread underline underline-offset-2">
            {shown ? 'Hide what was summarised' : 'Show what was summarised'}
          </FoldButton>
          {shown && <Summarised messageId={messageId} seeking={seeking} />}
        </div>
      )}
    </div>
  );
}

function Summarised({ messageId, seeking }: { messageId: string; seeking: number }) {
  const { client } = useHost();
  const conversation = useThis();
  const memory = useMemory();
  const sought = useStore(memory.store, (state) => state.landing?.messageId);
  const read = useCallback(async () => {
    const report = await client.call('GET /api/sessions/{id}/compactions/{message_id}', { path: { id: conversation.id, message_id: messageId } });
    const messages = report.messages as unknown as Message[];
    if (report.previous_id === null) return { messages, previous: null };
    const previous = await client.call('GET /api/sessions/{id}/compactions/{message_id}', { path: { id: conversation.id, message_id: report.previous_id } });
    return { messages, previous: { id: report.previous_id, data: previous.data as Compaction } };
  }, [client, conversation, messageId]);
  return (
    <Reading read={read}>
      {({ messages, previous }) => (
        <div className="grid min-w-0 gap-2">
          {previous && <Summary messageId={previous.id} data={previous.data} seeking={messages.some((message) => message.id === sought) ? 0 : seeking} />}
          <PastMessages messages={messages} />
        </div>
      )}
    </Reading>
  );
}

/** How much stands behind it; where an older summary did not say how much was behind that, that there is more. */
function summarised(data: Compaction): string {
  const turns = data.turns_in_all ?? data.turns;
  if (turns === undefined) return 'Summarised earlier turns';
  const more = data.previous_id !== undefined && data.turns_in_all === undefined;
  return `Summarised ${count(turns, 'earlier turn')}${more ? ', and those of the summary before' : ''}`;
}

function figures(data: Compaction): string {
  const told = ['The model sees this in place of them; you still have every word.'];
  if (data.tokens_before !== undefined && data.tokens_after !== undefined) told.push(`${tokens(data.tokens_before)} tokens became ${tokens(data.tokens_after)}.`);
  if (data.focus) told.push(`Kept in mind: ${data.focus}`);
  return told.join(' ');
}
