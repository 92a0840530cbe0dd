/** Without a token: a field, and the command that prints the address. */

import { useState } from 'react';
import { Button } from '../ui/button';

interface Props {
  refused: boolean;
  /** People are known here as the server that this page is a part of knows them. */
  byHost: boolean;
  onToken: (token: string) => void;
}

export function Gate({ refused, byHost, onToken }: Props) {
  const [text, setText] = useState('');
  return (
    <main className="grid h-full place-items-center overflow-auto p-4">
      <form
        className="grid w-full max-w-md gap-4 rounded-xl border border-line bg-raised p-6 shadow-sm"
        onSubmit={(event) => {
          event.preventDefault();
          // The whole address may be pasted as well.
          const token = /#token=([^&\s]+)/.exec(text)?.[1] ?? text.trim();
          if (token) onToken(token);
        }}
      >
        <h1 className="text-xl font-semibold">clew</h1>
        {byHost ? (
          <p className="text-quiet">You are not logged in here. Log in and open this page again, or give a token if you have one.</p>
        ) : (
          <p className="text-quiet">
            {refused ? 'The server does not know this token any more.' : 'This page needs the server’s token.'} Run{' '}
            <code className="rounded bg-panel px-1 py-0.5 font-mono text-sm text-ink">clew url</code> where the server runs, and open the
            address it prints, or paste it here.
          </p>
        )}
        <label className="grid gap-1 text-sm font-medium">
          Token or address
          <input
            autoFocus
            type="password"
            autoComplete="off"
            value={text}
            onChange={(event) => setText(event.target.value)}
            className="rounded-md border border-line bg-paper px-3 py-2 font-mono text-sm"
          />
        </label>
        <Button type="submit" look="thread" className="justify-self-start" disabled={!text.trim()}>
          Open
        </Button>
      </form>
    </main>
  );
}
