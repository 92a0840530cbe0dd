/** What two turns' last requests differ in, section by section. */

import { useMemo } from 'react';
import { useAnswer } from '../state/use_answer';
import { count } from '../ui/words';
import { Dialog } from '../ui/dialog';
import { lineDiff, withContext } from './line_diff';
import { requestSections } from './request_text';

const MARKS = { same: ' ', removed: '−', added: '+' } as const;
const LOOKS = { same: 'text-quiet', removed: 'bg-bad-soft text-bad', added: 'bg-good-soft text-good' } as const;

export function DiffDialog({ left, right, onClose }: { left: string; right: string; onClose: () => void }) {
  const one = useAnswer('GET /api/turns/{id}/request', { path: { id: left } });
  const other = useAnswer('GET /api/turns/{id}/request', { path: { id: right } });
  const error = one.error ?? other.error;
  const sections = useMemo(() => {
    if (!one.answer || !other.answer) return null;
    const before = new Map(requestSections(one.answer).map((section) => [section.name, section.text]));
    const after = new Map(requestSections(other.answer).map((section) => [section.name, section.text]));
    const names = [...new Set([...before.keys(), ...after.keys()])];
    return names.map((name) => ({ name, lines: withContext(lineDiff(before.get(name) ?? '', after.get(name) ?? '')) }));
  }, [one.answer, other.answer]);

  return (
    <Dialog title="What the model saw in the two turns" onClose={onClose} wide>
      {error && <p className="text-sm text-bad">{error}</p>}
      {sections?.map(({ name, lines }) => (
        <section key={name} className="mb-4">
          <h3 className="mb-1 text-sm font-semibold">
            {name} {lines.length === 0 && <span className="font-normal text-quiet">— the same</span>}
          </h3>
          {lines.length > 0 && (
            <pre tabIndex={0} className="overflow-auto rounded-md border border-line bg-paper font-mono text-xs whitespace-pre-wrap [overflow-wrap:anywhere]">
              {lines.map((line, index) =>
                line.kind === 'gap' ? (
                  <div key={index} className="border-y border-line px-2 py-0.5 text-quiet">
                    {count(line.count, 'line')} the same
                  </div>
                ) : (
                  <div key={index} className={`px-2 ${LOOKS[line.kind]}`}>
                    {MARKS[line.kind]} {line.text}
                  </div>
                ),
              )}
            </pre>
          )}
        </section>
      ))}
    </Dialog>
  );
}
