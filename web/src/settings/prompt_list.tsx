/** Saved prompts: list, add, edit, delete. */

import { useRef, useState } from 'react';
import { errorText } from '../api/problem';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { Button } from '../ui/button';
import { Section } from './rows';

const NEW = { name: '', text: '' };

export function PromptList() {
  const host = useHost();
  const prompts = useStore(host.store, (state) => state.prompts);
  const [form, setForm] = useState(NEW);
  const [failed, setFailed] = useState<string | null>(null);
  const name = useRef<HTMLInputElement>(null);
  const acting = async (act: () => Promise<unknown>) => {
    try {
      await act();
      setFailed(null);
      await host.loadPrompts();
      return true;
    } catch (error) {
      setFailed(`${errorText(error)}.`);
      return false;
    }
  };
  return (
    <Section title="Saved prompts" note="Stored by the server. Type / and a name to insert one, or use the palette, or /prompts in the terminal chat." error={failed}>
      {prompts.length > 0 && (
        <ul className="divide-y divide-line rounded-md border border-line">
          {prompts.map((prompt) => (
            <li key={prompt.name} className="flex items-baseline gap-3 px-3 py-1.5 max-sm:flex-wrap">
              <code className="w-32 shrink-0 truncate font-mono text-sm">/{prompt.name}</code>
              <span dir="auto" className="min-w-0 flex-1 truncate text-sm text-quiet">
                {prompt.text}
              </span>
              <Button
                tone="quiet"
                aria-label={`Edit /${prompt.name}`}
                onClick={() => {
                  setForm(prompt);
                  name.current?.focus();
                }}
              >
                Edit
              </Button>
              <Button
                tone="quiet"
                aria-label={`Delete /${prompt.name}`}
                onClick={() => {
                  // The button is removed with its row.
                  name.current?.focus();
                  void acting(() => host.client.call('DELETE /api/prompts/{name}', { path: { name: prompt.name } }));
                }}
              >
                Delete
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
          void acting(() => host.client.call('POST /api/prompts', { body: { name: form.name.trim(), text: form.text } })).then((saved) => saved && setForm(NEW));
        }}
      >
        <input
          ref={name}
          aria-label="Prompt name"
          placeholder="name, such as review"
          spellCheck={false}
          value={form.name}
          onChange={(event) => setForm({ ...form, name: event.target.value.toLowerCase().replace(/\s+/g, '-') })}
          className="w-56 max-w-full rounded-md border border-line bg-paper px-2 py-1 font-mono text-sm placeholder:text-quiet"
        />
        <textarea
          aria-label="Prompt text"
          placeholder="Text of the prompt"
          dir="auto"
          rows={2}
          value={form.text}
          onChange={(event) => setForm({ ...form, text: event.target.value })}
          className="rounded-md border border-line bg-paper px-2 py-1 placeholder:text-quiet"
        />
        <Button type="submit" className="justify-self-start" disabled={!form.name.trim() || !form.text.trim()}>
          Save prompt
        </Button>
      </form>
    </Section>
  );
}
