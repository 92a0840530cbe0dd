/** A tool call: one line with its name, summary and state, which expands to its input and output. */

import { memo, useId } from 'react';
import { useNow } from '../sidebar/now';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Pulse } from '../ui/pulse';
import { duration } from '../ui/format';
import { Approval } from './approval';
import { answeredAt, answerLine } from './approval_labels';
import { ChangeCounts } from './code_block';
import { DisclosureButton } from './disclosure_button';
import { useOpen } from './thread_state';
import { Question } from './question';
import { todoItems, TodoList } from './todo_list';
import { ToolInput } from './tool_input';
import { Subagent } from './subagent';
import { ToolOutput } from './tool_output';
import { editOf, exitCode, summarizeInput, liveOutput, STATE_LABELS, subagentOf, tookMs, toolName, type ToolPart, type ToolState, toolState } from './tool_part';

const TONES: Record<ToolState, string> = {
  preparing: 'text-quiet',
  running: 'text-info',
  waiting: 'text-warn',
  done: 'text-quiet',
  failed: 'text-bad',
  denied: 'text-bad',
  allowed: 'text-quiet',
  unfinished: 'text-quiet',
};

interface Props {
  part: ToolPart;
  live: boolean;
  /** Its turn was stopped or failed: an approved call will not run. */
  over?: boolean;
  pruned: boolean;
  /** Shown read-only, without approval buttons. */
  past: boolean;
}

export const ToolCard = memo(function ToolCard({ part, live, over = false, pruned, past }: Props) {
  const conversation = useThis();
  const waiting = useStore(conversation.store, (state) => !past && (state.status.waiting ?? []).some((wait) => wait.tool_call_id === part.toolCallId));
  const state = toolState(part, live, waiting, over);
  const name = toolName(part);
  const [open, setOpen] = useOpen(`tool ${part.toolCallId}`);
  const body = useId();
  const child = subagentOf(part);
  const code = exitCode(part);
  const edit = part.state === 'input-streaming' ? null : editOf(name, part);
  const durationMs = tookMs(part);
  const running = liveOutput(part);
  const todo = todoItems(name, part);
  const pending = state === 'waiting' && !past;
  const question = name === 'question';
  // Do not repeat a question that is shown below.
  const asking = question && (pending || (state === 'done' && !open));
  const answer = answerLine(part);
  const outcome = state === 'denied' || open ? answer : null;
  return (
    <div className={`my-2 min-w-0 rounded-lg border bg-raised ${pending ? 'border-warn' : 'border-line'}`} data-tool={name} data-state={state}>
      <DisclosureButton open={open} onChange={setOpen} controls={body} className="w-full px-2.5 py-1.5 hover:bg-panel">
        <span className="shrink-0 font-mono text-[13px] font-medium">{name}</span>
        <span dir="auto" className="min-w-0 flex-1 truncate font-mono text-[13px] text-quiet">
          {asking ? '' : summarizeInput(name, part.input)}
        </span>
        {edit && <ChangeCounts added={edit.added} removed={edit.removed} />}
        <span title={answer ?? undefined} className="shrink-0 text-xs tabular-nums">
          {code === null ? (
            <span className={TONES[state]}>
              {(state === 'running' || state === 'preparing') && <Pulse />}
              {STATE_LABELS[state]}
            </span>
          ) : (
            <span className={code === 0 ? 'text-quiet' : 'text-bad'}>{code >= 0 ? `exit code ${code}` : `killed by signal ${-code}`}</span>
          )}
          {state === 'running' && <Seconds toolCallId={part.toolCallId} />}
          {durationMs !== null && <span className="text-quiet"> · {duration(durationMs)}</span>}
        </span>
      </DisclosureButton>
      {pruned && <p className="px-2.5 pb-1.5 pl-[1.85rem] text-xs text-quiet">The model sees a stub of this output. {open ? 'The full output is below.' : 'Open to see the full output.'}</p>}
      {(open || outcome || pending || asking) && (
        <div id={body} className="grid min-w-0 gap-2.5 border-t border-line px-2.5 py-2.5">
          {asking && (pending ? <Question part={part} /> : <AnsweredQuestion part={part} />)}
          {!question && pending && part.approval && <Approval part={part} approval={part.approval} />}
          {open && !(pending && !question) && <ToolInput id={`in ${part.toolCallId}`} part={part} />}
          {open && !running && <ToolOutput id={`out ${part.toolCallId}`} part={part} />}
          {outcome && <p title={answeredAt(part)} className="text-sm break-words text-quiet">{outcome}</p>}
        </div>
      )}
      {todo && !open && (
        <div className="border-t border-line">
          <TodoList items={todo} />
        </div>
      )}
      {running && (
        <pre role="log" aria-label={`Output of ${name} so far`} dir="ltr" tabIndex={0} className="clew-sofar max-h-52 overflow-auto border-t border-line px-2.5 py-2 font-mono text-[13px] break-words whitespace-pre-wrap">
          {running}
        </pre>
      )}
      {child && <Subagent session={child} part={part} />}
    </div>
  );
});

/** The elapsed time of a running call, once the engine reports its start. */
function Seconds({ toolCallId }: { toolCallId: string }) {
  const conversation = useThis();
  const since = useStore(conversation.store, ({ status }) => status.running?.find((call) => call.tool_call_id === toolCallId)?.since ?? null);
  const now = useNow(since === null ? null : 1000);
  if (since === null) return null;
  const seconds = Math.max(1, Math.floor((now - since) / 1000));
  return (
    <span aria-hidden="true" className="text-info">
      {' '}
      · {seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`}
    </span>
  );
}

function AnsweredQuestion({ part }: { part: ToolPart }) {
  const question = (part.input as { question?: unknown } | undefined)?.question;
  return (
    <div dir="auto" className="grid gap-1 text-sm">
      {typeof question === 'string' && <p className="break-words text-quiet">{question}</p>}
      <p className="break-words whitespace-pre-wrap">{typeof part.output === 'string' ? part.output : JSON.stringify(part.output)}</p>
    </div>
  );
}
