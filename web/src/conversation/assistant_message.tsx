/** A message of the model, step by step. */

import { memo } from 'react';
import { type Message, modelName, textOf } from '../api/types';
import { useHost } from '../state/host';
import { isLive } from '../state/open_session';
import { goTo } from '../state/route';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { inspectTurn } from '../state/view';
import { Icon } from '../ui/icon';
import { Menu } from '../ui/menu';
import { Action, Actions, Moment } from './actions';
import { CopyButton } from './copy_button';
import { type VisiblePart, visibleItems } from './collapsed_reads';
import { CollapsedReadsLine } from './collapsed_reads_line';
import { MessageFrame } from './message_frame';
import { MessagePart } from './message_part';
import { isEmptyMessage, stepsOf } from './steps';
import { asTool } from './tool_part';
import { TurnEnd } from './turn_end';
import { Usage } from './usage';

interface Props {
  message: Message;
  /** It is being streamed. */
  live?: boolean;
  /** It is the newest message. */
  last?: boolean;
  past?: boolean;
}

export const AssistantMessage = memo(function AssistantMessage({ message, live = false, last = false, past = false }: Props) {
  const shown = visibleItems(stepsOf(message.parts));
  const pruned = message.metadata?.pruned;
  const unsent = message.metadata?.unsent_from;
  const over = ['aborted', 'failed'].includes(message.metadata?.turn?.status ?? '');
  const part = ({ at, part: shownPart }: VisiblePart) => (
    <MessagePart
      key={at}
      id={`part ${message.id} ${at}`}
      part={shownPart}
      live={live}
      over={over}
      pruned={pruned?.includes(asTool(shownPart)?.toolCallId ?? '') ?? false}
      past={past}
    />
  );
  // A failed attempt without output, after which the turn continued.
  if (unsent !== undefined && isEmptyMessage(message)) return null;
  return (
    <MessageFrame message={message} label="Assistant" past={past} className="py-1">
      {shown.map((one) => {
        if (one.kind === 'step') return <StepMark key={`step ${one.number}`} number={one.number} />;
        if (one.kind === 'part') return part(one);
        return (
          <CollapsedReadsLine key={`reads ${one.parts[0]!.at}`} id={`reads ${message.id} ${one.parts[0]!.at}`} parts={one.parts}>
            {part}
          </CollapsedReadsLine>
        );
      })}
      {unsent !== undefined && <p className="my-2 text-xs text-quiet">Stopped here; the model won’t see this part</p>}
      {!live && (past || !last) && <TurnEnd message={message} />}
      {!past && <AssistantActions message={message} live={live} last={last} />}
    </MessageFrame>
  );
});

/** A step separator, less prominent than the one between turns. */
function StepMark({ number }: { number: number }) {
  return (
    <div role="separator" aria-label={`Step ${number}`} className="mt-3 mb-1 flex items-center gap-2 text-xs text-quiet">
      <span className="h-px w-4 bg-line" />
      step {number}
    </div>
  );
}

function AssistantActions({ message, live, last }: { message: Message; live: boolean; last: boolean }) {
  const conversation = useThis();
  const busy = useStore(conversation.store, (state) => isLive(state.status));
  const turn = message.metadata?.turn_id;
  // Reserve the space while streaming, so that nothing moves at the end.
  if (live) return <div className="h-7" />;
  const text = textOf(message);
  const branch = async () => goTo({ session: (await conversation.branch(message.id)).id });
  // Unavailable buttons are disabled, not removed: the others must not move under the pointer.
  return (
    <Actions label="This answer" always={last} className="-ml-1.5">
      <CopyButton text={() => text} label="Copy answer" disabled={text === ''} />
      <Action label="Regenerate" icon="retry" disabled={busy} onClick={() => void conversation.regenerate(message.id).catch(() => undefined)} />
      <OtherModel message={message} disabled={busy} />
      <Action label="Branch from here" icon="branch" onClick={() => void branch().catch(() => undefined)} />
      {turn && <Action label="Inspect turn" icon="panel" onClick={() => inspectTurn(turn)} />}
      <Usage message={message} />
      <Moment at={message.metadata?.created_at} />
    </Actions>
  );
}

/** Models listed in the menu; /model lists all. */
const MAX_MODELS = 12;

function OtherModel({ message, disabled }: { message: Message; disabled: boolean }) {
  const conversation = useThis();
  const models = useStore(useHost().store, (state) => state.models);
  const others = models.filter((model) => model.usable && model.id !== modelName(message.metadata?.model)).slice(0, MAX_MODELS);
  return (
    <Menu
      label="Ask another model"
      side="left"
      disabled={disabled || others.length === 0}
      className="inline-flex size-7 items-center justify-center rounded-md text-quiet hover:bg-panel hover:text-ink disabled:opacity-50"
      items={others.map((model) => ({ label: model.id, pick: () => void conversation.regenerate(message.id, model.id).catch(() => undefined) }))}
    >
      <Icon name="chevron" className="size-3 rotate-90" />
    </Menu>
  );
}
