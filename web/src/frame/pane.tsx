/** One conversation with its gauge and its composer. */

import { useEffect } from 'react';
import { CompareDialog } from '../compare/compare_dialog';
import { Composer } from '../composer/composer';
import { Thread } from '../conversation/thread';
import { goTo } from '../state/route';
import { useStore } from '../state/store';
import type { Conversation } from '../state/conversation';
import { ConversationContext, useConversation } from '../state/use_conversation';
import { TopBar } from '../top/top_bar';
import { Boundary } from '../ui/boundary';
import { Button } from '../ui/button';

interface Props {
  id: string;
  /** A message to land on. */
  message: string | null;
  /** The pane of the page's own session, which owns the keys that act on all of it. */
  main?: boolean;
  onClose?: () => void;
}

export function Pane({ id, message, main = false, onClose }: Props) {
  const conversation = useConversation(id);
  // A page has one main part.
  const Place = main ? 'main' : 'section';
  return (
    <Place aria-label={main ? 'Conversation' : 'Conversation beside'} className={`flex min-w-0 flex-1 flex-col ${main ? '' : 'border-l border-line max-lg:absolute max-lg:inset-0 max-lg:z-10 max-lg:bg-paper'}`}>
      {conversation && <Opened conversation={conversation} message={message} main={main} onClose={onClose} />}
    </Place>
  );
}

function Opened({ conversation, message, main, onClose }: { conversation: Conversation; message: string | null; main: boolean; onClose?: () => void }) {
  const missing = useStore(conversation.store, (state) => state.missing);
  useEffect(() => {
    if (message) void conversation.reveal(message);
  }, [conversation, message]);
  if (missing) {
    return (
      <div className="grid flex-1 place-items-center p-6 text-center">
        <div className="grid gap-3">
          <p>This session is gone.</p>
          <Button onClick={() => (onClose ? onClose() : goTo({ session: null }))}>{onClose ? 'Close' : 'Back to the list'}</Button>
        </div>
      </div>
    );
  }
  return (
    <ConversationContext value={conversation}>
      <Boundary what="The line above the conversation" of={conversation}>
        <TopBar main={main} onClose={onClose} />
      </Boundary>
      <Boundary what="The conversation" of={conversation}>
        <Thread />
      </Boundary>
      <Boundary what="The place to write" of={conversation}>
        <Composer main={main} />
      </Boundary>
      <Boundary what="The comparison" of={conversation}>{main && <CompareDialog />}</Boundary>
    </ConversationContext>
  );
}
