/** The composer. Enter sends, or queues while a turn is running; Esc stops the turn; Up edits the last message. */

import { type ClipboardEvent, type KeyboardEvent, useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from 'react';
import { isLive } from '../state/open_session';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { useMessages, useThis } from '../state/use_conversation';
import { view } from '../state/view';
import { focusQuietly, openKeyboard } from '../ui/composer_field';
import { consumeNewSidecar } from '../top/sidecar';
import { AttachmentChips } from './attachment_chips';
import type { Completion } from './commands';
import { CompletionPopup } from './completion_popup';
import { ComposerBar } from './composer_bar';
import { EditingLine } from './editing_line';
import { findUnsupportedFile } from './file_kinds';
import { GrowingField } from './growing_field';
import { Hints } from './hints';
import { QueueChips } from './queue_chips';
import { CommandResult } from './command_result';
import { useAttachments } from './use_attachments';
import { useCompletion } from './use_completion';
import { useDraft } from './use_draft';
import { useDrop } from './use_drop';
import { useEscape } from './use_escape';
import { useModelChoice } from './use_model_choice';
import { useMentions } from './use_mentions';
import { useSending } from './use_sending';
import { useRequested } from './use_requested';
import { useOwner } from './use_owner';

export function Composer({ main }: { main: boolean }) {
  const conversation = useThis();
  const host = useHost();
  const { streaming } = useMessages(conversation);
  const status = useStore(conversation.store, (state) => state.status);
  const live = streaming || isLive(status);
  const waiting = (status.waiting?.length ?? 0) > 0;
  const form = useRef<HTMLFormElement>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const popup = useId();
  const [models, setModels] = useState(false);
  const [result, setResult] = useState<string | null>(null);

  const [caret, setCaret] = useState(0);
  /** Position of the caret after the next render. `late`: requested asynchronously, so leave the focus in another field. */
  const pendingCaret = useRef<{ at: number; late: boolean } | null>(null);
  const prompts = useStore(host.store, (state) => state.prompts);
  const owner = useOwner(conversation);

  const toEnd = useCallback((late: boolean) => {
    pendingCaret.current = { at: Infinity, late };
  }, []);
  const draft = useDraft(conversation, toEnd);
  const attachments = useAttachments(conversation);
  const model = useModelChoice(conversation);
  const { choose } = model;
  const commands = useMemo(
    () => ({ conversation, host, chooseModel: choose, openModels: () => setModels(true), openHelp: () => view.set({ dialog: 'help' }), showResult: setResult }),
    [conversation, host, choose],
  );
  const files = useMentions(draft.text, host.client, owner);
  const submit = useSending({ conversation, draft, attachments, model, commands, resolveMentions: files.resolveMentions });
  const editing = draft.editing !== null;
  const completion = useCompletion({ text: draft.text, caret, off: editing }, prompts, host.client, owner);
  useRequested(main, { commands, draft, toEnd });
  const { add } = attachments;
  const { listed } = model;
  const attach = useCallback(
    async (files: readonly File[]) => {
      add(files);
      const unsupported = await findUnsupportedFile(files, listed);
      if (unsupported !== null) conversation.notifyError(unsupported);
    },
    [add, listed, conversation],
  );
  const dropping = useDrop(form, attach);
  const stop = useCallback(() => void conversation.abort().catch(() => undefined), [conversation]);
  useEscape(main && live, stop);

  useEffect(() => {
    const { current } = field;
    const typing = document.activeElement?.matches('input, textarea') ?? false;
    if (!current || !(main ? !typing : consumeNewSidecar(conversation.id))) return;
    focusQuietly(current);
    // Continue a draft at its end.
    current.setSelectionRange(current.value.length, current.value.length);
  }, [main, conversation]);

  const type = (text: string) => draft.put({ text, editing: draft.now().editing });
  const cancelEdit = () => {
    draft.put({ text: '', editing: null });
    field.current?.focus();
  };
  const editLast = async () => {
    await conversation.whenLoaded();
    const last = conversation.lastUserMessage();
    // The user has started typing.
    if (!last || draft.now().text || draft.now().editing !== null) return;
    pendingCaret.current = { at: last.text.length, late: true };
    draft.put({ text: last.text, editing: last.id });
  };
  const complete = ({ text, caret: at }: Completion) => {
    pendingCaret.current = { at, late: false };
    files.typed(text, text.slice(0, at).trimEnd().length);
    type(text);
  };
  // In a layout effect, so that the next key is inserted after the text.
  useLayoutEffect(() => {
    const { current } = field;
    if (pendingCaret.current === null || !current) return;
    const { late } = pendingCaret.current;
    const at = Math.min(pendingCaret.current.at, draft.text.length);
    pendingCaret.current = null;
    if (!late || !document.activeElement?.closest('input, textarea, select, dialog')) focusQuietly(current);
    current.setSelectionRange(at, at);
    setCaret(at);
  }, [draft]);

  const onKeyDown = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    if (event.nativeEvent.isComposing || event.keyCode === 229) return;
    const { current, offered, selected, select } = completion;
    const plain = !event.shiftKey && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (current && plain && event.key === 'ArrowDown') select(selected + 1);
    else if (current && plain && event.key === 'ArrowUp') select(selected - 1);
    else if (current && plain && (event.key === 'Tab' || (event.key === 'Enter' && !current.ready))) complete(current);
    else if (offered.length > 0 && event.key === 'Escape') completion.dismiss();
    else if (event.key === 'Enter' && !event.shiftKey && !event.altKey) void submit();
    else if (event.key === 'Escape' && editing) cancelEdit();
    else if (event.key === 'Escape' && live) stop();
    else if (event.key === 'ArrowUp' && plain && !draft.text && !editing && attachments.items.length === 0) void editLast();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const onPaste = (event: ClipboardEvent) => {
    files.pasted(event.clipboardData.getData('text/plain'));
    const pasted = [...event.clipboardData.files];
    // Some programs copy an image of the text attached with the text; prefer the text.
    if (pasted.length === 0 || editing || event.clipboardData.types.includes('text/plain')) return;
    event.preventDefault();
    void attach(pasted);
  };

  return (
    <div className="@container relative z-5 mx-auto w-full max-w-3xl shrink-0 px-4 pt-1 pb-3 max-sm:px-2 max-sm:pb-2">
      <CommandResult text={result} onDismiss={() => setResult(null)} />
      <QueueChips />
      <form
        ref={form}
        aria-label={main ? 'Write a message' : 'Write a message in the side conversation'}
        className={`relative rounded-xl border bg-raised focus-within:border-thread ${dropping ? 'border-thread border-dashed' : 'border-line'}`}
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
          field.current?.focus();
        }}
      >
        {editing && <EditingLine onCancel={cancelEdit} />}
        <AttachmentChips items={attachments.items} onRemove={attachments.remove} mentions={editing ? [] : files.mentions} onToggle={files.toggle} />
        <GrowingField
          ref={field}
          value={draft.text}
          onChange={(event) => {
            setCaret(event.target.selectionEnd);
            if (/^insert(Text|Composition)/.test((event.nativeEvent as InputEvent).inputType)) files.typed(event.target.value, event.target.selectionEnd);
            type(event.target.value);
          }}
          onSelect={(event) => setCaret(event.currentTarget.selectionEnd)}
          onKeyDown={onKeyDown}
          onPaste={onPaste}
          onPointerDown={(event) => openKeyboard(event.currentTarget)}
          aria-label="Message"
          data-home
          aria-autocomplete="list"
          aria-controls={completion.current ? popup : undefined}
          aria-activedescendant={completion.current ? `${popup}-${completion.selected}` : undefined}
          placeholder={dropping ? 'Drop the files here' : placeholder(live, waiting)}
          className="px-3.5 pt-2.5 pb-1 placeholder:text-quiet focus-visible:outline-none"
        />
        {completion.current && (
          <CompletionPopup id={popup} offered={completion.offered} selected={completion.selected} onSelect={completion.select} onPick={complete} />
        )}
        <ComposerBar
          model={model}
          modelsOpen={models}
          onModels={setModels}
          onFiles={attach}
          state={{ live, waiting, editing, empty: !draft.text.trim() && attachments.items.length === 0 }}
          onStop={stop}
        />
      </form>
      <Hints live={live} waiting={waiting} editing={editing} />
    </div>
  );
}

function placeholder(live: boolean, waiting: boolean): string {
  if (waiting) return 'Respond above, or queue a message';
  if (live) return 'Queue the next message';
  // Keep it short on phones, where a button opens the commands.
  return window.matchMedia('(hover: hover)').matches ? 'Write a message, / for commands, @ for files' : 'Write a message';
}
