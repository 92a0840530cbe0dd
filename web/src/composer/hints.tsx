/** One line of keyboard hints, hidden on narrow screens. */

interface Props {
  live: boolean;
  waiting: boolean;
  editing: boolean;
}

export function Hints({ live, waiting, editing }: Props) {
  const hints = editing
    ? ['Enter resends', 'Esc cancels']
    : live || waiting
      ? ['Enter queues', ...(live ? ['Esc stops'] : []), 'Shift Enter for a new line']
      : ['Enter sends', 'Shift Enter for a new line', 'Up edits your last message', '/ for commands'];
  return <p className="hidden truncate px-2 pt-1 text-xs text-quiet @lg:block">{hints.join(' · ')}</p>;
}
