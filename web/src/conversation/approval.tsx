/** A call that needs approval: its input, the rule that requires approval, and the answers. */

import { type KeyboardEvent, type MouseEvent, useLayoutEffect, useRef, useState } from 'react';
import type { Decision } from '../state/conversation';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';
import { composerField, writeInComposer } from '../ui/composer_field';
import { AllowAll } from './allow_all';
import { requestTitle, targetLabels, approvalReason } from './approval_labels';
import { useDraft, useOpen } from './thread_state';
import { OfferChoice } from './offer_choice';
import { isKeyClick, leaveByEscape, paneOf, returnFocus, useRequestGuard } from './request_guard';
import { ToolInput } from './tool_input';
import { type Approval as Asked, toolName, type ToolPart } from './tool_part';

export function Approval({ part, approval }: { part: ToolPart; approval: Asked }) {
  const conversation = useThis();
  const root = useStore(conversation.store, (state) => state.session?.workspace_root ?? null);
  const [sending, setSending] = useState(false);
  const [denying, setDenying] = useOpen(`denying ${approval.id}`);
  const offers = approval.descriptor?.offers;
  const [picked, setPicked] = useDraft(`offer ${approval.id}`, offers?.[0]?.pattern);
  const [reason, setReason] = useDraft(`reason ${approval.id}`);
  const ref = useRef<HTMLDivElement>(null);
  const buttons = useRef<HTMLDivElement>(null);
  const name = toolName(part);
  const { ready, takesKeys, guard } = useRequestGuard(buttons, approval.id);
  const [focused, setFocused] = useState(false);
  const [selected, setSelected] = useState<Decision | null>(null);
  /** The key that selected it. If more text follows, it was the first letter of a message. */
  const letter = useRef('');
  /** Set when a press opened the reason field; a field that is only rendered again takes no focus. */
  const asksReason = useRef(false);

  const decide = async (decision: Decision) => {
    const done = returnFocus(ref.current);
    setSending(true);
    try {
      const makesRule = decision === 'session' || decision === 'project';
      await conversation.decide(approval.id, decision, { reason: decision === 'deny' ? reason.trim() : undefined, pattern: makesRule && offers?.length ? picked : undefined });
      done();
    } catch {
      // The notice above the composer shows the error.
    } finally {
      setSending(false);
    }
  };

  // Requests of older versions have no offers; their rules cover the exact call.
  const canMakeRule = offers === undefined || offers.length > 0;
  const answers = [
    { decision: 'once', key: 'y', label: 'Allow once', tone: 'thread' },
    ...(canMakeRule ? [{ decision: 'session', key: 's', label: 'For this session', tone: 'plain' } as const] : []),
    ...(canMakeRule && root !== null ? [{ decision: 'project', key: 'p', label: 'Always in this project', tone: 'plain' } as const] : []),
    ...(denying ? [] : [{ decision: 'deny', key: 'n', label: 'Deny', tone: 'danger' } as const]),
  ] as const;

  const press = (decision: Decision, event: MouseEvent) => {
    letter.current = '';
    if (decision === 'deny') {
      asksReason.current = true;
      setDenying(true);
    }
    // From the keyboard, storing a rule needs a second key.
    else if (decision !== 'once' && isKeyClick(event) && selected !== decision) setSelected(decision);
    else void decide(decision);
  };

  const deselect = () => {
    letter.current = '';
    setSelected(null);
  };
  const keys = focused && ready.keys;
  // A letter selects an answer and Enter confirms it. Any other typed text goes to the composer.
  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    if ((event.target as HTMLElement).matches('input, select') || leaveByEscape(event)) return;
    if (event.key.length !== 1 || event.ctrlKey || event.metaKey || event.altKey || event.nativeEvent.isComposing) return;
    if (letter.current) {
      const typed = letter.current;
      deselect();
      return writeInComposer(composerField(paneOf(ref.current)), typed);
    }
    const match = answers.find(({ key }) => key === event.key.toLowerCase());
    const button = match && buttons.current?.querySelector<HTMLElement>(`[data-decision="${match.decision}"]`);
    if (!button || event.shiftKey || event.repeat || sending || denying) return;
    // As long as the keys are shown, a letter is no text, even if the answer must wait until the request is steady again.
    if (!keys && !takesKeys()) return;
    event.preventDefault();
    button.focus({ preventScroll: true });
    letter.current = event.key;
    setSelected(match.decision);
  };
  useLayoutEffect(() => {
    const pane = paneOf(ref.current);
    // The request was answered elsewhere while text was being typed here.
    return () => {
      const typed = letter.current;
      if (typed) queueMicrotask(() => writeInComposer(composerField(pane), typed));
    };
  }, []);

  return (
    <div
      ref={ref}
      data-request={approval.id}
      data-keys={keys || undefined}
      role="group"
      tabIndex={-1}
      aria-label={requestTitle(name)}
      onKeyDown={onKeyDown}
      onFocus={() => setFocused(true)}
      onBlur={(event) => {
        deselect();
        setFocused(event.currentTarget.contains(event.relatedTarget));
      }}
      className="grid min-w-0 gap-3 rounded-sm outline-offset-[6px]"
    >
      <ToolInput id={`ask ${part.toolCallId}`} part={part} />
      <div className="grid gap-1 text-sm">
        <Targets approval={approval} root={root} command={(part.input as { command?: unknown } | undefined)?.command} />
        <p className="break-words text-quiet">{approvalReason(approval)}</p>
      </div>
      {offers && <OfferChoice offers={offers} picked={picked} onPick={setPicked} />}
      <div ref={buttons} {...guard} className="flex flex-wrap gap-2">
        {answers.map(({ decision, key, label, tone }) => (
          <Button
            key={decision}
            tone={tone}
            disabled={sending}
            aria-disabled={!ready.presses || undefined}
            data-decision={decision}
            data-key={selected === decision ? '⏎' : key}
            aria-keyshortcuts={keys ? key : undefined}
            onClick={(event) => press(decision, event)}
          >
            {label}
          </Button>
        ))}
        <AllowAll toolCallId={part.toolCallId} />
        <span role="status" className="sr-only">
          {selected && `Press Enter to confirm: ${answers.find(({ decision }) => decision === selected)?.label}`}
        </span>
      </div>
      {denying && (
        <form
          className="flex flex-wrap items-end gap-2"
          onSubmit={(event) => {
            event.preventDefault();
            void decide('deny');
          }}
          onKeyDown={(event) => {
            if (event.key !== 'Escape') return;
            event.stopPropagation();
            setDenying(false);
            ref.current?.focus();
          }}
        >
          <label className="grid min-w-40 flex-1 gap-1 text-xs text-quiet">
            Reason (optional, sent to the model)
            <input ref={(field) => focusOnce(field, asksReason)} dir="auto" value={reason} onChange={(event) => setReason(event.target.value)} className="rounded-md border border-line bg-paper px-2 py-1 text-sm text-ink" />
          </label>
          <Button type="submit" tone="danger" disabled={sending}>
            Deny
          </Button>
          <Button tone="quiet" disabled={sending} onClick={() => setDenying(false)}>
            Cancel
          </Button>
        </form>
      )}
    </div>
  );
}

function focusOnce(field: HTMLInputElement | null, requested: { current: boolean }): void {
  if (field && requested.current) field.focus();
  if (field) requested.current = false;
}

function Targets({ approval, root, command }: { approval: Asked; root: string | null; command: unknown }) {
  // The command is shown above already.
  const targets = (approval.descriptor?.targets ?? []).map((target) => targetLabels(target, root)).filter((target) => target.value !== '' && target.value !== command);
  if (targets.length === 0) return null;
  return (
    <ul aria-label="Affected" className="grid gap-1">
      {targets.map((target, index) => (
        <li key={index} className="flex min-w-0 flex-wrap items-baseline gap-x-2">
          <span className="text-xs text-quiet">{target.what}</span>
          <code dir="ltr" className="min-w-0 font-mono text-[13px] break-all">
            {target.value}
          </code>
          {target.where && <span className={`text-xs ${target.where.startsWith('outside') ? 'text-warn' : 'text-quiet'}`}>{target.where}</span>}
        </li>
      ))}
    </ul>
  );
}
