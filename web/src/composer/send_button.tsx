/** Send, queue, resend or stop: one button, plus a second stop button while there is text to queue. */

import { Button, IconButton } from '../ui/button';

interface Props {
  live: boolean;
  waiting: boolean;
  editing: boolean;
  empty: boolean;
  onStop: () => void;
}

export function SendButton({ live, waiting, editing, empty, onStop }: Props) {
  if (live && empty) {
    return (
      <Button tone="plain" icon="stop" title="Stop (Esc)" onClick={onStop}>
        Stop
      </Button>
    );
  }
  const queues = (live || waiting) && !editing;
  return (
    <>
      {live && <IconButton label="Stop (Esc)" icon="stop" onClick={onStop} />}
      <Button type="submit" tone="thread" icon={queues ? 'clock' : 'send'} disabled={empty}>
        {editing ? 'Resend' : queues ? 'Queue' : 'Send'}
      </Button>
    </>
  );
}
