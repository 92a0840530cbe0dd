/** Summarised turns: a line that expands to the summary and the original messages. */

import { useCallback, useEffect } from 'react';
import type { Message } from '../api/types';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { count, tokens } from '../ui/format';
import { DisclosureButton } from './disclosure_button';
import { Markdown } from './markdown';
import { useThreadState, useOpen } from './thread_state';
import { PastMessages, Loaded } from './past_messages';

interface Compaction {
  summary?: string;
  turns?: number;
  /** Including the turns of the previous summary. */
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
  const thread = useThreadState();
  const scrollTarget = useStore(thread.store, (state) => (state.scrollTarget?.within === id && state.scrollTarget.messageId !== message.id ? state.scrollTarget.seq : 0));
  return <Summary messageId={message.id} data={data} scrollRequest={scrollTarget} />;
}

/** `scrollRequest` is a scroll request to one of the summarised messages, or to an earlier one. */
function Summary({ messageId, data, scrollRequest }: { messageId: string; data: Compaction; scrollRequest: number }) {
  const [open, setOpen] = useOpen(`summary ${messageId}`);
  const [shown, setShown] = useOpen(`summarised ${messageId}`);
  useEffect(() => {
    if (scrollRequest === 0) return;
    setOpen(true);
    setShown(true);
  }, [scrollRequest, setOpen, setShown]);
  return (
    <div role="group" aria-label="Summary of earlier turns" className="py-2" data-message={messageId}>
      <div className="flex items-center gap-3">
        <span className="h-px flex-1 bg-line" />
        <DisclosureButton open={open} onChange={setOpen} className="px-1 text-sm text-quiet hover:text-ink">
          {labelOf(data)}
        </DisclosureButton>
        <span className="h-px flex-1 bg-line" />
      </div>
      {open && (
        <div className="mt-2 grid min-w-0 gap-3 rounded-lg border border-line bg-raised px-4 py-3">
          <p className="text-xs text-quiet">{detailsOf(data)}</p>
          {data.warning && <p className="text-sm text-warn">{data.warning}</p>}
          <div className="min-w-0 text-sm">
            <Markdown text={data.summary ?? 'Summary not available.'} />
          </div>
          <DisclosureButton open={shown} onChange={setShown} className="justify-self-start text-sm text-thread underline underline-offset-2">
            {shown ? 'Hide original messages' : 'Show original messages'}
          </DisclosureButton>
          {shown && <Summarised messageId={messageId} scrollRequest={scrollRequest} />}
        </div>
      )}
    </div>
  );
}

function Summarised({ messageId, scrollRequest }: { messageId: string; scrollRequest: number }) {
  const { client } = useHost();
  const conversation = useThis();
  const thread = useThreadState();
  const targetId = useStore(thread.store, (state) => state.scrollTarget?.messageId);
  const read = useCallback(async () => {
    const report = await client.call('GET /api/sessions/{id}/compactions/{message_id}', { path: { id: conversation.id, message_id: messageId } });
    const messages = report.messages as unknown as Message[];
    if (report.previous_id === null) return { messages, previous: null };
    const previous = await client.call('GET /api/sessions/{id}/compactions/{message_id}', { path: { id: conversation.id, message_id: report.previous_id } });
    return { messages, previous: { id: report.previous_id, data: previous.data as Compaction } };
  }, [client, conversation, messageId]);
  return (
    <Loaded read={read}>
      {({ messages, previous }) => (
        <div className="grid min-w-0 gap-2">
          {previous && <Summary messageId={previous.id} data={previous.data} scrollRequest={messages.some((message) => message.id === targetId) ? 0 : scrollRequest} />}
          <PastMessages messages={messages} />
        </div>
      )}
    </Loaded>
  );
}

/** Return the label. Old summaries do not count the turns of the summary before. */
function labelOf(data: Compaction): string {
  const turns = data.turns_in_all ?? data.turns;
  if (turns === undefined) return 'Summarised earlier turns';
  const more = data.previous_id !== undefined && data.turns_in_all === undefined;
  return `Summarised ${count(turns, 'earlier turn')}${more ? ', plus an earlier summary' : ''}`;
}

function detailsOf(data: Compaction): string {
  const lines = ['The model sees this summary instead; the original messages are kept.'];
  if (data.tokens_before !== undefined && data.tokens_after !== undefined) lines.push(`${tokens(data.tokens_before)} → ${tokens(data.tokens_after)} tokens.`);
  if (data.focus) lines.push(`Focus: ${data.focus}`);
  return lines.join(' ');
}
