/** Shown while changes are loading. */

const LINES = [72, 48, 60];

export function ChangesSkeleton() {
  return (
    <div role="status" aria-label="Loading changes" className="clew-skeleton grid gap-3 p-4">
      {LINES.map((width) => (
        <span key={width} className="h-3.5 rounded bg-line" style={{ width: `${width}%` }} />
      ))}
    </div>
  );
}
