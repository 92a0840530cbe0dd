/** What a person said, and what can be done from there. */

import { memo } from 'react';
import type { FileUIPart } from 'ai';
import { keyOf, type Message, textOf } from '../api/types';
import { isLive } from '../state/open_session';
import { compareVersions } from '../compare/compare';
import { type Versions, versionsIn } from '../state/rewound';
import { goTo } from '../state/route';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Action, Actions, Moment } from './actions';
import { Attachment } from './attachment';
import { CopyButton } from './copy_button';
import { fold } from './fold';
import { Markdown } from './markdown';
import { useMemory, useOpen } from './memory';
import { MessageEditor } from './message_editor';
import { MessageFrame } from './message_frame';

const LONG_LINES = 40;

export const UserMessage = memo(function UserMessage({ message, past = false }: { message: Message; past?: boolean }) {
  const memory = useMemory();
  const key = keyOf(message);
  const editing = useStore(memory.store, (state) => !past && state.editing === key);
  const files = message.parts.filter((part): part is FileUIPart => part.type === 'file');
  const text = textOf(message);
  const mark = markOf(message);
  return (
    <MessageFrame message={message} label={mark ?? 'You'} past={past} className="flex flex-col items-end pt-2">
      {mark && <div className="mb-1 text-xs text-quiet">{mark}</div>}
      {files.length > 0 && (
        <div className="mb-1.5 flex max-w-[88%] flex-wrap items-end justify-end gap-1.5">
          {files.map((part, index) => (
            <Attachment key={index} part={part} />
          ))}
        </div>
      )}
      {editing ? (
        <MessageEditor message={message} files={files.length} />
      ) : (
        text !== '' && <Bubble id={`said ${key}`} text={text} dashed={mark !== null} />
      )}
      {!past && !editing && <UserActions message={message} text={text} own={mark === null} />}
    </MessageFrame>
  );
});

function Bubble({ id, text, dashed }: { id: string; text: string; dashed: boolean }) {
  const [open, setOpen] = useOpen(id);
  const folded = fold(text, LONG_LINES);
  return (
    <div className={`max-w-[88%] min-w-0 rounded-2xl bg-said px-3.5 py-2 ${dashed ? 'border border-dashed border-line' : ''}`}>
      <div className="clew-said min-w-0 break-words">
        <Markdown text={open || !folded.folded ? text : folded.shown} />
      </div>
      {folded.folded && (
        <button type="button" aria-expanded={open} className="mt-1 rounded text-sm text-thread underline underline-offset-2" onClick={() => setOpen(!open)}>
          {open ? 'Show less' : 'Show all of it'}
        </button>
      )}
    </div>
  );
}

function UserActions({ message, text, own }: { message: Message; text: string; own: boolean }) {
  const conversation = useThis();
  const memory = useMemory();
  const busy = useStore(conversation.store, (state) => isLive(state.status));
  const versions = useStore(conversation.store, (state) => versionsIn(state.tree).get(message.id));
  const branch = async () => goTo({ session: (await conversation.branch(message.id)).id });
  return (
    <Actions label="Your message" always={versions !== undefined} className="justify-end">
      <Moment at={message.metadata?.created_at} />
      {own && versions && <VersionSwitch id={message.id} versions={versions} disabled={busy} />}
      {own && (
        <>
          <Action label="Edit and send again" icon="edit" disabled={busy} onClick={() => memory.store.set({ editing: keyOf(message) })} />
          <Action label="Rewind to here" icon="rewind" disabled={busy} onClick={() => void conversation.rewind(message.id).catch(() => undefined)} />
          <Action label="Branch from here" icon="branch" onClick={() => void branch().catch(() => undefined)} />
        </>
      )}
      <CopyButton text={() => text} label="Copy the message" />
    </Actions>
  );
}

/** The other ways in which it was said or answered: the line goes there. */
function VersionSwitch({ id, versions: { tips, at }, disabled }: { id: string; versions: Versions; disabled: boolean }) {
  const conversation = useThis();
  const show = (place: number) => void conversation.goTo(tips[place]!).catch(() => undefined);
  return (
    <span role="group" aria-label="Versions" className="me-1 inline-flex items-center text-xs text-quiet tabular-nums">
      <Action label="Version before" icon="back" disabled={disabled || at === 0} onClick={() => show(at - 1)} />
      {at + 1}/{tips.length}
      <Action label="Version after" icon="chevron" disabled={disabled || at === tips.length - 1} onClick={() => show(at + 1)} />
      <Action label="Compare the versions" icon="sidecar" onClick={() => compareVersions(conversation, id)} />
    </span>
  );
}

/** Where a message came from that nobody typed here. */
function markOf(message: Message): string | null {
  const { synthetic, trigger } = message.metadata ?? {};
  if (trigger) {
    const name = [trigger.name, trigger.kind, trigger.type, trigger.source].find((value) => typeof value === 'string' && value !== '');
    return typeof name === 'string' ? `Started by ${name}` : 'Started by a trigger';
  }
  return synthetic ? 'Added by clew' : null;
}
