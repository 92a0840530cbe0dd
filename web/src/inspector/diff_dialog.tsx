/** The differences between the last requests of two turns, section by section. */

import { useMemo } from 'react';
import { useQuery } from '../state/use_answer';
import { Dialog } from '../ui/dialog';
import { DiffLines } from '../ui/diff_lines';
import { lineDiff, withContext } from '../ui/line_diff';
import { requestSections } from './request_text';

export function DiffDialog({ left, right, onClose }: { left: string; right: string; onClose: () => void }) {
  const one = useQuery('GET /api/turns/{id}/request', { path: { id: left } });
  const other = useQuery('GET /api/turns/{id}/request', { path: { id: right } });
  const error = one.error ?? other.error;
  const sections = useMemo(() => {
    if (!one.answer || !other.answer) return null;
    const before = new Map(requestSections(one.answer).map((section) => [section.name, section.text]));
    const after = new Map(requestSections(other.answer).map((section) => [section.name, section.text]));
    const names = [...new Set([...before.keys(), ...after.keys()])];
    return names.map((name) => ({ name, lines: withContext(lineDiff(before.get(name) ?? '', after.get(name) ?? '')) }));
  }, [one.answer, other.answer]);

  return (
    <Dialog title="Compare requests" onClose={onClose} wide>
      {error && <p className="text-sm text-bad">{error}</p>}
      {sections?.map(({ name, lines }) => (
        <section key={name} className="mb-4">
          <h3 className="mb-1 text-sm font-semibold">
            {name} {lines.length === 0 && <span className="font-normal text-quiet">— identical</span>}
          </h3>
          {lines.length > 0 && <DiffLines lines={lines} />}
        </section>
      ))}
    </Dialog>
  );
}
