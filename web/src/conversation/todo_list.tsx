/** The to-do list of an answer. */

import type { ToolPart } from './tool_part';

interface Item {
  text: string;
  status: string;
}

const MARKS: Record<string, string> = { completed: '✓', in_progress: '▸' };
const LABELS: Record<string, string> = { completed: 'done', in_progress: 'in progress' };

/** Return the items of a `todo` call; null for other calls, and while the input is streaming. */
export function todoItems(name: string, part: ToolPart): Item[] | null {
  if (name !== 'todo' || part.state === 'input-streaming') return null;
  const items = (part.input as { items?: unknown } | undefined)?.items;
  const known = (item: unknown): item is Item => typeof (item as Item | null)?.text === 'string' && typeof (item as Item).status === 'string';
  return Array.isArray(items) && items.every(known) ? items : null;
}

export function TodoList({ items }: { items: Item[] }) {
  return (
    <ul aria-label="To do" className="grid gap-1 px-2.5 py-2 text-sm">
      {items.map((item, index) => {
        const over = item.status === 'completed';
        return (
          <li key={index} className="flex min-w-0 gap-2">
            <span aria-hidden className={`w-3 shrink-0 text-center ${item.status === 'in_progress' ? 'text-info' : 'text-quiet'}`}>
              {MARKS[item.status] ?? '○'}
            </span>
            <span dir="auto" className={`min-w-0 break-words ${over ? 'text-quiet line-through' : item.status === 'in_progress' ? 'font-medium' : ''}`}>
              {item.text}
            </span>
            <span className="sr-only">({LABELS[item.status] ?? 'to do'})</span>
          </li>
        );
      })}
    </ul>
  );
}
