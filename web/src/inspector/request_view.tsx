/** The exact request of a step, rebuilt and verified against its stored digest. */

import { useState } from 'react';
import { useQuery } from '../state/use_answer';
import { count } from '../ui/format';
import { Icon } from '../ui/icon';
import { Disclosure, PlainText } from './disclosure';
import { messageText } from './request_text';

export function RequestView({ turnId, steps }: { turnId: string; steps: number }) {
  const [step, setStep] = useState<number | null>(null);
  const shown = step === null || step >= steps ? steps - 1 : step;
  const { answer: request, error } = useQuery('GET /api/turns/{id}/request', { path: { id: turnId }, query: { step: shown } });
  return (
    <section aria-label="What the model saw">
      <div className="flex flex-wrap items-center gap-2 px-4 pb-2">
        <h3 className="flex-1 text-sm font-semibold">What the model saw</h3>
        {steps > 1 && (
          <select
            aria-label="Step"
            className="rounded-md border border-line bg-raised px-2 py-0.5 text-sm"
            value={shown}
            onChange={(event) => setStep(Number(event.target.value))}
          >
            {Array.from({ length: steps }, (_, index) => (
              <option key={index} value={index}>
                Step {index + 1}
              </option>
            ))}
          </select>
        )}
        {request && (
          <span
            title={`digest ${request.digest}`}
            className={`inline-flex items-center gap-1 rounded-full px-2 py-0.5 text-xs ${request.proven ? 'bg-good-soft text-good' : 'bg-warn-soft text-warn'}`}
          >
            <Icon name={request.proven ? 'check' : 'warning'} className="size-3.5" />
            {request.proven ? 'Verified' : 'Differs from what was sent'}
          </span>
        )}
      </div>
      {error && <p className="px-4 text-sm text-bad">{error}</p>}
      {request && (
        <>
          {request.prompt.map((section) => (
            <Disclosure key={section.name} title={`Prompt: ${section.name}`} note={`${section.text.length.toLocaleString('en')} characters`}>
              <PlainText>{section.text}</PlainText>
            </Disclosure>
          ))}
          <Disclosure title="Tools" note={request.tools.length || 'none'}>
            {request.tools.length === 0 && <p className="text-sm text-quiet">No tools were sent.</p>}
            <ul className="grid gap-2">
              {request.tools.map((tool) => (
                <li key={tool.name} className="text-sm">
                  <span className="font-mono font-medium">{tool.name}</span>
                  <p className="break-words whitespace-pre-line text-quiet">{tool.description}</p>
                </li>
              ))}
            </ul>
          </Disclosure>
          <Disclosure title="Messages" note={count(request.messages.length, 'message')}>
            <ol className="grid gap-2">
              {request.messages.map((message, index) => (
                <li key={`${message.id} ${index}`}>
                  <p className="text-xs text-quiet">{message.role}</p>
                  <PlainText>{messageText(message)}</PlainText>
                </li>
              ))}
            </ol>
          </Disclosure>
        </>
      )}
    </section>
  );
}
