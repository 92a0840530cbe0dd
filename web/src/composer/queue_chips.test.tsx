import { act, fireEvent, render } from '@testing-library/react';
import { expect, test } from 'vitest';
import { Client } from '../api/client';
import { Conversation } from '../state/conversation';
import { ConversationContext } from '../state/use_conversation';
import { QueueChips } from './queue_chips';

test('an edit of a queued message is not lost when the message is sent meanwhile', () => {
  const conversation = new Conversation('ses_1', new Client('token', '', () => Promise.reject(new Error('no network here'))));
  const message = { id: 'msg_1', role: 'user', parts: [{ type: 'text', text: 'as it was' }] };
  conversation.store.set({ queue: [message] as never });
  const shown = render(
    <ConversationContext value={conversation}>
      <QueueChips />
    </ConversationContext>,
  );
  fireEvent.click(shown.getByRole('button', { name: /^Edit queued message/ }));
  fireEvent.change(shown.getByLabelText('Queued message'), { target: { value: 'in other words' } });
  act(() => conversation.store.set({ queue: [] }));
  expect(conversation.store.get().draft?.text).toBe('in other words');
});
