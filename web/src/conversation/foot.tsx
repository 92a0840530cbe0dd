/** Under the last message: that an answer is on its way, that it is tried again, or that it failed. */

import type { Message } from '../api/types';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Icon } from '../ui/icon';
import { saysNothing } from './steps';
import { StatusEnd, TurnEnd, useTurn } from './turn_end';
import { ending } from './turn_words';

export function Foot({ last, busy }: { last: Message | undefined; busy: boolean }) {
  const conversation = useThis();
  const status = useStore(conversation.store, (state) => state.status);
  const quiet = !last || last.role === 'user' || saysNothing(last);
  const told = ending(useTurn(last, true)) !== null;
  return (
    <div className="mx-auto w-full max-w-3xl px-4 pb-6">
      {status.state === 'retrying' ? (
        <p role="status" className="flex items-center gap-2 py-1.5 text-sm text-warn">
          <Icon name="retry" className="size-3.5" />
          <span className="min-w-0 break-words">
            {status.message ? sentence(status.message) : 'The provider did not answer.'} Trying again{status.attempt ? `, attempt ${status.attempt}` : ''}.
          </span>
        </p>
      ) : (
        busy && quiet && (
          <p className="py-1.5">
            <span className="sr-only">Waiting for the answer</span>
            <span aria-hidden="true" className="clew-breath text-xl leading-none tracking-widest text-quiet">
              …
            </span>
          </p>
        )
      )}
      {!busy && (told ? last?.role === 'user' && <TurnEnd message={last} last /> : <StatusEnd />)}
    </div>
  );
}

/** What happened, without the time of the next attempt: the top bar counts that down. */
function sentence(message: string): string {
  const text = message.split(';')[0]!.trim();
  const capital = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(capital) ? capital : `${capital}.`;
}
