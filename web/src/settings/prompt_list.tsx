/** Saved prompts: what they are called and say, a way to make one, to change it, and to forget it. */

import { useRef, useState } from 'react';
import { inWords } from '../api/problem';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { Button } from '../ui/button';
import { Section } from './rows';

const NEW = { name: '', text: '' };

export function PromptList() {
  const host = useHost();
  const prompts = useStore(host.store, (state) => state.prompts);
  const [given, setGiven] = useState(NEW);
  const [failed, setFailed] = useState<string | null>(null);
  const name = useRef<HTMLInputElement>(null);
  const acting = async (act: () => Promise<unknown>) => {
    try {
      await act();
      setFailed(null);
      await host.loadPrompts();
      return true;
    } catch (error) {
      setFailed(`${inWords(error)}.`);
      return false;
    }
  };
  return (
    <Section title="Saved prompts" note="Kept by the server. / and a name puts one where you write; so does the palette, and /prompts in the chat of a terminal." error={failed}>
      {prompts.length > 0 && (
        <ul className="divide-y divide-line rounded-md border border-line">
          {prompts.map((prompt) => (
            <li key={prompt.name} className="flex items-baseline gap-3 px-3 py-1.5 max-sm:flex-wrap">
              <code className="w-32 shrink-0 truncate font-mono text-sm">/{prompt.name}</code>
              <span dir="auto" className="min-w-0 flex-1 truncate text-sm text-quiet">
                {prompt.text}
              </span>
              <Button
                look="quiet"
                aria-label={`Change /${prompt.name}`}
                onClick={() => {
                  setGiven(prompt);
                  name.current?.focus();
                }}
              >
                Change
              </Button>
              <Button
                look="quiet"
                aria-label={`Forget /${prompt.name}`}
                onClick={() => {
                  // The button goes with its row.
                  name.current?.focus();
                  void acting(() => host.client.call('DELETE /api/prompts/{name}', { path: { name: prompt.name } }));
                }}
              >
                Forget
              </Button>
            </li>
          ))}
        </ul>
      )}
      <form
        aria-label="Save a prompt"
        className="grid gap-2"
        onSubmit={(event) => {
          event.preventDefault();
          void acting(() => host.client.call('POST /api/prompts', { body: { name: given.name.trim(), text: given.text } })).then((saved) => saved && setGiven(NEW));
        }}
      >
        <input
          ref={name}
          aria-label="Name of the prompt"
          placeholder="name, such as review"
          spellCheck={false}
          value={given.name}
          onChange={(event) => setGiven({ ...given, name: event.target.value.toLowerCase().replace(/\s+/g, '-') })}
          className="w-56 max-w-full rounded-md border border-line bg-paper px-2 py-1 font-mono text-sm placeholder:text-quiet"
        />
        <textarea
          aria-label="Text of the prompt"
          placeholder="What to say"
          dir="auto"
          rows={2}
          value={given.text}
          onChange={(event) => setGiven({ ...given, text: event.target.value })}
          className="rounded-md border border-line bg-paper px-2 py-1 placeholder:text-quiet"
        />
        <Button type="submit" className="justify-self-start" disabled={!given.name.trim() || !given.text.trim()}>
          Save the prompt
        </Button>
      </form>
    </Section>
  );
}
