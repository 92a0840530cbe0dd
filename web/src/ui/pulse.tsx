/** A pulsing dot next to the label of an activity. */

export function Pulse() {
  return <span aria-hidden="true" className="clew-breath me-1.5 inline-block size-1.5 rounded-full bg-current align-middle" />;
}
