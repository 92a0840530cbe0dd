/** The rules the session has of its own, and what happens without one. */

import { useStore } from '../state/store';
import { useAnswer } from '../state/use_answer';
import { useThis } from '../state/use_conversation';
import { Fold } from './fold';

export function RulesInForce() {
  const conversation = useThis();
  const version = useStore(conversation.store, (state) => state.session?.updated_at);
  const { answer } = useAnswer('GET /api/sessions/{id}/permissions', { path: { id: conversation.id } }, version);
  const rules = answer?.rules ?? [];
  return (
    <Fold title="Rules of this session" note={rules.length || 'none'}>
      <ul className="grid gap-1 text-sm">
        {rules.map((rule, index) => (
          <li key={index} className="break-words">
            <span className={rule.action === 'allow' ? 'text-good' : rule.action === 'deny' ? 'text-bad' : 'text-warn'}>{rule.action}</span>{' '}
            <span className="font-mono text-xs">
              {rule.permission} {rule.pattern}
            </span>
            {rule.pinned && <span className="text-quiet"> (pinned)</span>}
          </li>
        ))}
      </ul>
      <p className="mt-1 text-sm text-quiet">
        Then come the rules of the project and of the agent. What no rule speaks of is asked.
      </p>
    </Fold>
  );
}
