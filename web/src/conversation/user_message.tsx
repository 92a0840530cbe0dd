/** A message of the user and its actions. */

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
import { collapse } from './collapse';
import { Markdown } from './markdown';
import { useThreadState, useOpen } from './thread_state';
import { MessageEditor } from './message_editor';
import { MessageFrame } from './message_frame';

const LONG_LINES = 40;

export const UserMessage = memo(function UserMessage({ message, past = false }: { message: Message; past?: boolean }) {
  const thread = useThreadState();
  const key = keyOf(message);
  const editing = useStore(thread.store, (state) => !past && state.editing === key);
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
        text !== '' && <Bubble id={`message ${key}`} text={text} dashed={mark !== null} />
      )}
      {!past && !editing && <UserActions message={message} text={text} own={mark === null} />}
    </MessageFrame>
  );
});

function Bubble({ id, text, dashed }: { id: string; text: string; dashed: boolean }) {
  const [open, setOpen] = useOpen(id);
  const collapsed = collapse(text, LONG_LINES);
  return (
    <div className={`max-w-[88%] min-w-0 rounded-2xl bg-bubble px-3.5 py-2 ${dashed ? 'border border-dashed border-line' : ''}`}>
      <div className="clew-user min-w-0 break-words">
        <Markdown text={open || !collapsed.collapsed ? text : collapsed.shown} />
      </div>
      {collapsed.collapsed && (
        <button type="button" aria-expanded={open} className="mt-1 rounded text-sm text-thread underline underline-offset-2" onClick={() => setOpen(!open)}>
          {open ? 'Show less' : 'Show all'}
        </button>
      )}
    </div>
  );
}

function UserActions({ message, text, own }: { message: Message; text: string; own: boolean }) {
  const conversation = useThis();
  const thread = useThreadState();
  const busy = useStore(conversation.store, (state) => isLive(state.status));
  const versions = useStore(conversation.store, (state) => versionsIn(state.tree).get(message.id));
  const branch = async () => goTo({ session: (await conversation.branch(message.id)).id });
  return (
    <Actions label="Your message" always={versions !== undefined} className="justify-end">
      <Moment at={message.metadata?.created_at} />
      {own && versions && <VersionSwitch id={message.id} versions={versions} disabled={busy} />}
      {own && (
        <>
          <Action label="Edit and resend" icon="edit" disabled={busy} onClick={() => thread.store.set({ editing: keyOf(message) })} />
          <Action label="Rewind to here" icon="rewind" disabled={busy} onClick={() => void conversation.rewind(message.id).catch(() => undefined)} />
          <Action label="Branch from here" icon="branch" onClick={() => void branch().catch(() => undefined)} />
        </>
      )}
      <CopyButton text={() => text} label="Copy message" />
    </Actions>
  );
}

/** Switches between versions of a message or its answer. */
function VersionSwitch({ id, versions: { tips, at }, disabled }: { id: string; versions: Versions; disabled: boolean }) {
  const conversation = useThis();
  const show = (index: number) => void conversation.showVersion(tips[index]!).catch(() => undefined);
  return (
    <span role="group" aria-label="Versions" className="me-1 inline-flex items-center text-xs text-quiet tabular-nums">
      <Action label="Previous version" icon="back" disabled={disabled || at === 0} onClick={() => show(at - 1)} />
      {at + 1}/{tips.length}
      <Action label="Next version" icon="chevron" disabled={disabled || at === tips.length - 1} onClick={() => show(at + 1)} />
      <Action label="Compare versions" icon="sidecar" onClick={() => compareVersions(conversation, id)} />
    </span>
  );
}

/** Return the label of a message that the user did not type. */
function markOf(message: Message): string | null {
  const { synthetic, trigger } = message.metadata ?? {};
  if (trigger) {
    const name = [trigger.name, trigger.kind, trigger.type, trigger.source].find((value) => typeof value === 'string' && value !== '');
    return typeof name === 'string' ? `Started by ${name}` : 'Started by a trigger';
  }
  return synthetic ? 'Added by clew' : null;
}
