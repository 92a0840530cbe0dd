/** A call that waits for a word: exactly what it would do, which rule asked, and the answers there are. */

import { useRef, useState } from 'react';
import type { Decision } from '../state/conversation';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';
import { AllowAll } from './allow_all';
import { useAnswerKeys, useArmed, useMeant } from './answer_keys';
import { targetWords, whoAsked } from './approval_words';
import { useDraft, useMemory, useOpen } from './memory';
import { OfferChoice } from './offer_choice';
import { passOn, usePoliteFocus } from './polite_focus';
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
  const name = toolName(part);
  const armed = useArmed(approval.id);
  const meant = useMeant(ref);
  const memory = useMemory();
  usePoliteFocus(ref, approval.id, armed);

  const decide = async (decision: Decision) => {
    const done = passOn(ref.current);
    setSending(true);
    try {
      const kept = decision === 'session' || decision === 'project';
      await conversation.decide(approval.id, decision, { reason: decision === 'deny' ? reason.trim() : undefined, pattern: kept && offers?.length ? picked : undefined });
      done();
    } catch {
      // The notice above the composer says why.
    } finally {
      setSending(false);
    }
  };

  // Requests of old offer nothing; what they allow is the call itself.
  const keepable = offers === undefined || offers.length > 0;
  useAnswerKeys(ref, armed && !sending && !denying, (key) => {
    if (key === 'y') void decide('once');
    else if (key === 's' && keepable) void decide('session');
    else if (key === 'p' && keepable && root !== null) void decide('project');
    else if (key === 'n') setDenying(true);
    // One that came as the key went down was not seen.
    else if (key === 'Y' || key === 'N') void conversation.decideAll(key === 'Y' ? 'once' : 'deny', [...memory.armed]).catch(() => undefined);
    else return false;
    return true;
  });

  return (
    <div ref={ref} data-waits={approval.id} data-meant={meant || undefined} role="group" tabIndex={-1} aria-label={`${name} waits for your word`} className="grid min-w-0 gap-3 rounded-sm outline-offset-[6px]">
      <ToolInput id={`ask ${part.toolCallId}`} part={part} />
      <div className="grid gap-1 text-sm">
        <Targets approval={approval} root={root} command={(part.input as { command?: unknown } | undefined)?.command} />
        <p className="break-words text-quiet">{whoAsked(approval)}</p>
      </div>
      {offers && <OfferChoice offers={offers} picked={picked} onPick={setPicked} />}
      <div className="flex flex-wrap gap-2">
        <Button look="thread" disabled={sending} data-key="y" aria-keyshortcuts={armed && meant ? 'y' : undefined} onClick={() => void decide('once')}>
          Allow once
        </Button>
        {keepable && (
          <Button disabled={sending} data-key="s" aria-keyshortcuts={armed && meant ? 's' : undefined} onClick={() => void decide('session')}>
            For this session
          </Button>
        )}
        {keepable && root !== null && (
          <Button disabled={sending} data-key="p" aria-keyshortcuts={armed && meant ? 'p' : undefined} onClick={() => void decide('project')}>
            Always in this project
          </Button>
        )}
        {!denying && (
          <Button look="danger" disabled={sending} data-key="n" aria-keyshortcuts={armed && meant ? 'n' : undefined} onClick={() => setDenying(true)}>
            Deny
          </Button>
        )}
        <AllowAll toolCallId={part.toolCallId} />
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
            Why not (the model is told; may be empty)
            <input dir="auto" autoFocus value={reason} onChange={(event) => setReason(event.target.value)} className="rounded-md border border-line bg-paper px-2 py-1 text-sm text-ink" />
          </label>
          <Button type="submit" look="danger" disabled={sending}>
            Deny
          </Button>
          <Button look="quiet" disabled={sending} onClick={() => setDenying(false)}>
            Cancel
          </Button>
        </form>
      )}
    </div>
  );
}

function Targets({ approval, root, command }: { approval: Asked; root: string | null; command: unknown }) {
  // A command that stands above, word for word, is not said twice.
  const targets = (approval.descriptor?.targets ?? []).map((target) => targetWords(target, root)).filter((target) => target.value !== '' && target.value !== command);
  if (targets.length === 0) return null;
  return (
    <ul aria-label="What it would touch" className="grid gap-1">
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
