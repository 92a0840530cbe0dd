/** Added and removed lines of a file; a file that is not text has none. */

export function LineCounts({ added, removed }: { added?: number | null; removed?: number | null }) {
  if (added == null || removed == null) return <span className="shrink-0 text-xs text-quiet">not text</span>;
  return (
    <span className="shrink-0 font-mono text-xs tabular-nums" aria-label={`${added} added, ${removed} removed`} role="img">
      {added > 0 && <span className="text-good">+{added}</span>} {removed > 0 && <span className="text-bad">−{removed}</span>}
    </span>
  );
}
