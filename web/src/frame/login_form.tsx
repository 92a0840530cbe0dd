/** The login form, shown without a valid token. */

import { useState } from 'react';
import { Button } from '../ui/button';

interface Props {
  refused: boolean;
  /** The application that embeds clew handles the login. */
  byHost: boolean;
  onToken: (token: string) => void;
}

export function LoginForm({ refused, byHost, onToken }: Props) {
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
          <p className="text-quiet">You are not logged in. Log in and reopen this page, or enter a token.</p>
        ) : (
          <p className="text-quiet">
            {refused ? 'This token is no longer valid.' : 'This page needs the server’s token.'} Run{' '}
            <code className="rounded bg-panel px-1 py-0.5 font-mono text-sm text-ink">clew url</code> where the server runs, then open the
            address it prints or paste it here.
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
        <Button type="submit" tone="thread" className="justify-self-start" disabled={!text.trim()}>
          Open
        </Button>
      </form>
    </main>
  );
}
