/** One conversation: top bar, thread and composer. */

import { lazy, Suspense, useEffect } from 'react';
import { CompareDialog } from '../compare/compare_dialog';
import { Composer } from '../composer/composer';
import { Thread } from '../conversation/thread';
import { goTo } from '../state/route';
import { useStore } from '../state/store';
import type { Conversation } from '../state/conversation';
import { ConversationContext, useConversation } from '../state/use_conversation';
import { TopBar } from '../top/top_bar';
import { ErrorBoundary } from '../ui/error_boundary';
import { Button } from '../ui/button';

// Loaded on first use.
const RestoreDialog = lazy(() => import('../files/restore_dialog').then((module) => ({ default: module.RestoreDialog })));

interface Props {
  id: string;
  /** A message to scroll to. */
  message: string | null;
  /** The main pane, which handles the page's shortcuts. */
  main?: boolean;
  onClose?: () => void;
}

export function Pane({ id, message, main = false, onClose }: Props) {
  const conversation = useConversation(id);
  // A page has one main landmark.
  const Tag = main ? 'main' : 'section';
  return (
    <Tag aria-label={main ? 'Conversation' : 'Side conversation'} className={`flex min-w-0 flex-1 flex-col ${main ? '' : 'border-l border-line max-lg:absolute max-lg:inset-0 max-lg:z-10 max-lg:bg-paper'}`}>
      {conversation && <ConversationPane conversation={conversation} message={message} main={main} onClose={onClose} />}
    </Tag>
  );
}

function ConversationPane({ conversation, message, main, onClose }: { conversation: Conversation; message: string | null; main: boolean; onClose?: () => void }) {
  const missing = useStore(conversation.store, (state) => state.missing);
  const question = useStore(conversation.store, (state) => state.question);
  useEffect(() => {
    if (message) void conversation.older.reveal(message);
  }, [conversation, message]);
  if (missing) {
    return (
      <div className="grid flex-1 place-items-center p-6 text-center">
        <div className="grid gap-3">
          <p>This session does not exist or was deleted.</p>
          <Button onClick={() => (onClose ? onClose() : goTo({ session: null }))}>{onClose ? 'Close' : 'Back to the list'}</Button>
        </div>
      </div>
    );
  }
  return (
    <ConversationContext value={conversation}>
      <ErrorBoundary name="The top bar" resetKey={conversation}>
        <TopBar main={main} onClose={onClose} />
      </ErrorBoundary>
      <ErrorBoundary name="The conversation" resetKey={conversation}>
        <Thread />
      </ErrorBoundary>
      <ErrorBoundary name="The composer" resetKey={conversation}>
        <Composer main={main} />
      </ErrorBoundary>
      <ErrorBoundary name="This dialog" resetKey={question}>
        {question && (
          <Suspense>
            <RestoreDialog key={question.preview.snapshot_id} question={question} />
          </Suspense>
        )}
      </ErrorBoundary>
      <ErrorBoundary name="The comparison" resetKey={conversation}>{main && <CompareDialog />}</ErrorBoundary>
    </ConversationContext>
  );
}
