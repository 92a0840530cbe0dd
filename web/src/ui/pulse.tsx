/** A dot that breathes beside the words for what goes on; the words stay readable. */

export function Pulse() {
  return <span aria-hidden="true" className="clew-breath me-1.5 inline-block size-1.5 rounded-full bg-current align-middle" />;
}
